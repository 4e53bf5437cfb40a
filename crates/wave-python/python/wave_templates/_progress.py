"""Progress of long tasks: bars of tqdm in a notebook or on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

#: Seconds between the lines of a task.
LINE_EVERY = 10.0


class Progress:
    """Shows what the native side reports."""

    def __init__(self) -> None:
        self._notebook = _in_notebook()
        self._tqdm: Any = _tqdm() if self._notebook or _is_terminal(sys.stderr) else None
        self._bars: dict[int, Any] = {}
        self._last: dict[int, float] = {}

    def __call__(self, task: int | None, label: str, done: int | None, total: int, text: str) -> None:
        if task is None:
            self._line(text)
        elif done is None:
            self._last.pop(task, None)
            bar = self._bars.pop(task, None)
            if bar is not None:
                bar.close()
        elif self._tqdm is not None:
            self._draw(task, label, done, total, text)
        elif time.monotonic() - self._last.setdefault(task, time.monotonic()) > LINE_EVERY:
            self._last[task] = time.monotonic()
            self._line(f"{label} {done}/{total} {text}")

    def _draw(self, task: int, label: str, done: int, total: int, text: str) -> None:
        if task not in self._bars:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # tqdm says where a notebook has no widgets
                self._bars[task] = self._tqdm(
                    desc=label, total=total, leave=False, bar_format="{desc} {bar} {n_fmt}/{total_fmt}{postfix}"
                )
        bar = self._bars[task]
        bar.total, bar.n = total, done
        bar.set_postfix_str(text)

    def _line(self, text: str) -> None:
        out = sys.stdout if self._notebook else sys.stderr
        if self._tqdm is not None:
            self._tqdm.write(text, file=out)
        else:
            print(text, file=out, flush=True)


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", str)()
    return "IPKernelApp" in getattr(shell, "config", {})


def _is_terminal(stream: Any) -> bool:
    return stream is not None and stream.isatty()


def _tqdm() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    return tqdm
