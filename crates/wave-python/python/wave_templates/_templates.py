"""Weight templates."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from . import _model, _native, _stages
from ._run import PathLike, path, run

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    _P = ParamSpec("_P")
_T = TypeVar("_T")


def _method(function: Callable[Concatenate[Any, _P], _T]) -> Callable[Concatenate[Any, _P], _T]:
    """A function whose first argument may be left out, as a method, for which type checkers want one."""
    return function


class WeightTemplates(os.PathLike[str]):
    """A set of weight templates, which makes models of any depth and width.

    >>> templates = wave.WeightTemplates.from_pretrained("cifar-10")
    >>> templates.expand(6, 96).to_timm()

    It is also a path (``os.PathLike``), so any function that takes a template directory accepts it.
    """

    def __init__(self, source: str, directory: PathLike) -> None:
        #: ``hf:OWNER/NAME``, or the directory.
        self.source = source
        #: The template directory.
        self.path = os.fspath(directory)
        with open(os.path.join(self.path, "config.json"), encoding="utf-8") as file:
            #: Its ``config.json``: image size, classes, ``label_names``, ``accuracies`` at recorded sizes...
            self.config: dict[str, Any] = json.load(file)

    @classmethod
    def from_pretrained(cls, name: PathLike | None = None, *, progress: bool = True) -> WeightTemplates:
        """Opens a template directory, a shipped set (the first by default), or ``hf:OWNER/NAME``, which is
        downloaded to the cache that Python's hub client shares."""
        given = path(name)
        directory = os.fspath(_native.resolve(given, run(progress=progress)))
        return cls(given if given and given.startswith(("hf:", "hf-hub:")) else directory, directory)

    def __fspath__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        c = self.config
        return f"<WeightTemplates {self.source}: {c['image_size']} x {c['image_size']} pixels, {c['classes']} classes>"

    expand = _method(_model.expand)
    adapt = _stages.adapt
    push_to_hub = _stages.publish
