"""What all calls share: paths, settings and results as JSON, and the keywords of where and how to work."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

from ._progress import Progress

if TYPE_CHECKING:
    from ._model import Model
    from ._templates import WeightTemplates

PathLike = Union[str, "os.PathLike[str]"]


@dataclass
class Run:
    """Where and how the native side works."""

    device: str = "cpu"
    threads: Optional[int] = None
    resume: bool = False
    overwrite: bool = False
    progress: Optional[Callable[..., None]] = None


def run(
    device: str = "cpu",
    threads: int | None = None,
    progress: bool = True,
    resume: bool = False,
    overwrite: bool = False,
) -> Run:
    return Run(device, threads, resume, overwrite, Progress() if progress else None)


@dataclass
class Given:
    """Settings of a stage as JSON, the directory to write, and a recipe: its file, or its content as JSON."""

    settings: str
    out: Optional[str] = None
    recipe: Optional[str] = None
    table: Optional[str] = None


def given(
    settings: Mapping[str, Any],
    out: PathLike | None = None,
    recipe: PathLike | Mapping[str, Any] | None = None,
) -> Given:
    if isinstance(recipe, Mapping):
        return Given(to_json(settings), path(out), None, to_json(recipe))
    return Given(to_json(settings), path(out), path(recipe))


def path(of: PathLike | None) -> str | None:
    """A path that may be left out."""
    return None if of is None else os.fspath(of)


def to_json(settings: Mapping[str, Any]) -> str:
    """Settings without those that are ``None``."""
    return json.dumps(_given(settings), default=_plain)


def _given(value: Any, of: str = "") -> Any:
    if isinstance(value, Mapping):
        # `from_`, since Python keeps `from` for itself.
        return {key.removesuffix("_"): _given(v, key) for key, v in value.items() if v is not None}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{of} = {value}; expected a finite number")
    return [_given(v, of) for v in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy, and paths."""
    return value.tolist() if hasattr(value, "tolist") else os.fspath(value)


@contextmanager
def directory(artefact: PathLike | Model) -> Iterator[str]:
    """The directory of an artefact; of a model in memory, one that holds it for the time being."""
    if isinstance(artefact, (str, os.PathLike)):
        yield os.fspath(artefact)
        return
    with TemporaryDirectory() as place:
        held = os.path.join(place, "model")
        artefact.save(held)
        yield held


class Result(Dict[str, Any]):
    """Result of a stage, as ``wave --json`` prints it: ``out``, ``parameters``, ``top1``..."""

    @property
    def model(self) -> Model:
        """The model in ``out``."""
        from ._model import read

        return read(self["out"])

    @property
    def templates(self) -> WeightTemplates:
        """The templates in ``out``."""
        from ._templates import WeightTemplates

        return WeightTemplates.from_pretrained(self["out"])


def result(text: str) -> Result:
    return Result(json.loads(text))
