"""The stages, each a command of ``wave``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, List

from . import _native
from ._ancestor import Ancestor
from ._images import contents
from ._run import PathLike, Result, directory, given, path, result, run, to_json

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._model import Model
    from ._settings import AdaptSettings, CondenseSettings, FinetuneSettings


def condense(
    recipe: PathLike | Mapping[str, Any] | None = None,
    out: PathLike | None = None,
    *,
    ancestor: Any = None,
    data: PathLike | None = None,
    minutes: float | None = None,
    sizes: str | None = None,
    preprocessing: Mapping[str, Any] | None = None,
    cache: PathLike | None = None,
    train_limit: int | None = None,
    test_limit: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Unpack[CondenseSettings],
) -> Result:
    """Distils an ancestor into weight templates, as ``wave condense`` does.

    >>> made = wave.condense(ancestor=timm_model, data="photos", minutes=60, sizes="2x64..12x192")
    >>> model = made.templates.expand(depth=6, width=96)

    Without ``recipe``, missing settings are planned for ``minutes`` (60) and ``sizes`` (smallest and largest model as
    layers x width), from the ancestor, the data, and rates measured on this machine. ``recipe`` is a TOML file, or a
    dict of the same tables: ``{"condense": {"epochs": 10, "auxiliary": {"depth": 6, "width": 192}}}``. Keywords
    override it.

    Args:
        out: the template directory to write; ``runs/condense-DATE-TIME`` by default.
        ancestor: a model directory, ``hf:OWNER/NAME``, a timm model, or any ``torch.nn.Module`` that maps images
            (b, channels, side, side) to class scores (b, n). With ``ancestor_output="features"`` it teaches by its
            features instead: a timm model by the input of its classifier (b, width), any other module by its
            outputs.
        data: a directory of images, tar shards, ``hf:OWNER/NAME``, ``"fashion-mnist"`` or ``"shapes"``.
        preprocessing: the input images of a module, with the keys of timm's ``pretrained_cfg`` (``input_size``
            (channels, side, side), ``mean``, ``std``, ``interpolation``, ``crop_pct``, ``crop_mode``); a timm model
            has its own.
        cache: a directory for the ancestor's outputs, so that further condensations do not run it again.
        device: ``"cpu"``; in builds for GPUs also ``"cuda"`` or ``"cuda:N"``.
        resume: continue the interrupted run in ``out``.
        overwrite: replace the contents of ``out``.
        settings: further keys of ``[condense]``, the flags of ``wave condense``.
    """
    keys: dict[str, Any] = dict(
        settings, data=data, minutes=minutes, sizes=sizes, cache=cache, train_limit=train_limit,
        test_limit=test_limit, epochs=epochs, steps=steps, batch=batch, lr=lr, seed=seed,
    )
    module = None
    if callable(getattr(ancestor, "state_dict", None)):
        module = Ancestor(ancestor, preprocessing)
    elif preprocessing is not None:
        raise ValueError("preprocessing applies only to an ancestor that is a torch.nn.Module; remove it")
    else:
        keys["ancestor"] = ancestor
    where = run(device, threads, progress, resume, overwrite)
    return result(_native.condense(given(keys, out, recipe), module, where))


def adapt(
    templates: PathLike,
    out: PathLike | None = None,
    *,
    data: PathLike | None = None,
    recipe: PathLike | Mapping[str, Any] | None = None,
    whole: bool | None = None,
    train_limit: int | None = None,
    test_limit: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Unpack[AdaptSettings],
) -> Result:
    """Fits templates to other data once, for models of all sizes, as ``wave adapt`` does.

    Args:
        templates: :class:`WeightTemplates`, a template directory, a shipped set's name, or ``hf:OWNER/NAME``.
        out: the directory for the delta, for ``expand(delta=out)``; ``runs/adapt-DATE-TIME`` by default.
        whole: write whole templates instead.
        settings: further keys of ``[adapt]``; other arguments as in :func:`condense`.
    """
    keys = dict(
        settings, data=data, whole=whole, train_limit=train_limit, test_limit=test_limit, epochs=epochs,
        steps=steps, batch=batch, lr=lr, seed=seed,
    )
    where = run(device, threads, progress, resume, overwrite)
    name = os.fspath(getattr(templates, "source", templates))
    return result(_native.adapt(name, given(keys, out, recipe), where))


def finetune(
    model: PathLike | Model,
    out: PathLike | None = None,
    *,
    data: PathLike | None = None,
    recipe: PathLike | Mapping[str, Any] | None = None,
    new_head: bool | None = None,
    ancestor: PathLike | None = None,
    train_limit: int | None = None,
    test_limit: int | None = None,
    epochs: float | None = None,
    steps: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    device: str = "cpu",
    threads: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    **settings: Unpack[FinetuneSettings],
) -> Result:
    """Trains all weights of a model, as ``wave finetune`` does; ``result.model`` is the tuned model.

    Args:
        model: a :class:`Model`, a model directory, or ``hf:OWNER/NAME``.
        out: the model directory to write; ``runs/finetune-DATE-TIME`` by default.
        new_head: start a new classifier for the data's classes.
        ancestor: a model directory to distil from as well.
        settings: further keys of ``[finetune]``; other arguments as in :func:`condense`.
    """
    keys = dict(
        settings, data=data, new_head=new_head, ancestor=ancestor, train_limit=train_limit, test_limit=test_limit,
        epochs=epochs, steps=steps, batch=batch, lr=lr, seed=seed,
    )
    where = run(device, threads, progress, resume, overwrite)
    with directory(model) as held:
        return result(_native.finetune(held, given(keys, out, recipe), where))


def evaluate(
    model: PathLike | Model,
    *,
    data: PathLike | None = None,
    test_limit: int | None = None,
    hold_out: int | None = None,
    knn: int | None = None,
    train_limit: int | None = None,
    heads: int | None = None,
    labels: PathLike | None = None,
    prompt: List[str] | None = None,
    seed: int | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool = True,
) -> Result:
    """Accuracy of a model on test images, as ``wave eval`` does: ``top1``, ``top5``, ``loss``, ``images``.

    Args:
        model: a :class:`Model`, a model directory, or ``hf:OWNER/NAME``.
        test_limit: test on the first N images of a seeded shuffle.
        hold_out: test on the N training images that ``finetune(hold_out=)`` holds out.
        knn: evaluate features instead, by N nearest neighbours and a linear probe.
        labels: a file of class names, for a CLIP or SigLIP; ``prompt`` are texts with ``{}`` for the name.
    """
    keys = dict(
        data=data, test_limit=test_limit, hold_out=hold_out, knn=knn, train_limit=train_limit, heads=heads,
        labels=labels, prompt=prompt, seed=seed,
    )
    with directory(model) as held:
        return result(_native.evaluate(held, given(keys), run(device, threads, progress)))


def predict(
    model: PathLike | Model,
    images: Any | Iterable[Any],
    *,
    heads: int | None = None,
    labels: PathLike | None = None,
    prompt: List[str] | None = None,
    device: str = "cpu",
    threads: int | None = None,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Classifies images, as ``wave predict`` does.

    Args:
        model: a :class:`Model`, a model directory, or ``hf:OWNER/NAME``.
        images: one or several; each a path, a directory, a PIL image, or a uint8 array (height, width) or
            (height, width, channels); or an array (b, height, width, channels).
        heads, labels, prompt: as in :func:`evaluate`, for a model in a directory.

    Returns:
        For each image a dict: ``image`` (its path or place), ``index``, ``label`` and ``probability`` of the most
        probable class, ``top`` (the same for the top five), and ``logits`` (n,).
    """
    where = run(device, threads, progress)
    if isinstance(model, (str, os.PathLike)):
        native = _native.read(os.fspath(model), heads, to_json({"labels": labels, "prompt": prompt}), where)
    else:
        native = model._current()
    predictions: list[dict[str, Any]] = result(native.predict(contents(images), where))["predictions"]
    return predictions


def convert(
    model: PathLike | Model,
    out: PathLike | None = None,
    *,
    format: str | None = None,
    dtype: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool = True,
) -> Result:
    """Writes a model in another layout or precision, as ``wave convert`` does.

    ``format`` is ``"timm"``, ``"transformers"`` or ``"onnx"``, ``dtype`` ``"f32"``, ``"f16"`` or ``"bf16"``.
    """
    where = run("cpu", None, progress, resume, overwrite)
    with directory(model) as held:
        return result(_native.convert(held, given({"format": format, "dtype": dtype}, out), where))


def publish(
    artefact: PathLike | Model,
    repo: str,
    *,
    private: bool = False,
    revision: str | None = None,
    create_pr: bool = False,
    message: str | None = None,
    license: str | None = None,
    dry_run: bool = False,
    progress: bool = True,
) -> Result:
    """Uploads templates, a delta or a model to a hub as one commit, as ``wave publish`` does.

    Args:
        artefact: :class:`WeightTemplates`, a :class:`Model`, or a directory of templates, a model or a delta.
        repo: ``"OWNER/NAME"``.
        private: make the repository private, if it has to be created.
        revision: commit to this branch; ``create_pr`` proposes the commit to main instead.
        license: the licence that the card names, such as ``"apache-2.0"``.
        dry_run: list the ``files`` to upload, without uploading.
    """
    keys = dict(
        repo=repo, private=private, revision=revision, create_pr=create_pr, message=message, license=license
    )
    with directory(artefact) as held:
        return result(_native.publish(held, to_json(keys), dry_run, run(progress=progress)))


def pull(name: str, out: PathLike | None = None, *, progress: bool = True) -> Result:
    """Downloads ``OWNER/NAME`` or ``OWNER/NAME@REV`` to ``out``, or to the cache that Python's hub client shares."""
    return result(_native.pull(name, path(out), run(progress=progress)))


def inspect(of: PathLike, *, progress: bool = True) -> Result:
    """Contents of a template directory, a model directory or a safetensors file."""
    return result(_native.inspect(os.fspath(of), run(progress=progress)))


def templates(*dirs: PathLike) -> list[dict[str, Any]]:
    """The available templates: shipped, here, downloaded, and in ``dirs``, with sizes and accuracies."""
    found = result(_native.templates([os.fspath(d) for d in dirs], run(progress=False)))
    rows: list[dict[str, Any]] = found["templates"]
    return rows
