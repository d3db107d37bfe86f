"""What it costs to read a source again, by the process that a node starts: seconds and memory."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["INPUTS_CASES"]

#: Seconds for one million lines whose values are those of before, the start of Python included.
MOST_SECONDS = 2.0
#: Lines of the other formats.
OTHERS = 200_000

_PROGRAM = """
from hyperbloom.inputs.reading import main
main()
print(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
"""


def _names(count: int) -> list[str]:
    chosen = random.Random(1)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    return ["".join(chosen.choices(letters, k=12)) + ".example.com" for _ in range(count)]


class _Source:
    """A file that is read again and again; `next` becomes `known` as with a node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "out").mkdir(parents=True)
        self._etag: str | None = None

    def read(self, text: str, **options: str) -> dict[str, Any]:
        source, out = self._folder / "source", self._folder / "out"
        source.write_text(text)
        request = {
            "path": str(source),
            "max_bytes": 1 << 30,
            "seconds": 300.0,
            "etag": self._etag,
            "known": str(self._folder / "known"),
            "folder": str(out),
            **options,
        }
        begun = time.monotonic()
        ended = subprocess.run(
            [sys.executable, "-P", "-c", _PROGRAM],
            input=json.dumps(request).encode(),
            capture_output=True,
            check=True,
        )
        seconds = time.monotonic() - begun
        line, peak = ended.stdout.splitlines()
        answer = json.loads(line)
        self._etag = answer["etag"]
        if answer["outcome"] == "read":
            (out / "next").rename(self._folder / "known")
        told = {key: answer[key] for key in ("outcome", "values", "new", "gone") if key in answer}
        return {**told, "wall_s": seconds, "peak_mib": int(peak) / 1_024}


def _lines(names: list[str]) -> str:
    return "\n".join(names) + "\n"


_FORMATS: dict[str, Callable[[list[str]], str]] = {
    "lines": _lines,
    "hosts": lambda names: "".join(f"0.0.0.0 {name}\n" for name in names),
    "adblock": lambda names: "".join(f"||{name}^\n" for name in names),
    "csv": lambda names: "id,name\n" + "".join(f'1,"{name}"\n' for name in names),
    "json": lambda names: json.dumps([{"name": name} for name in names]),
}
_OPTIONS: dict[str, dict[str, str]] = {"csv": {"column": "name"}, "json": {"pointer": "/*/name"}}


def inputs_case(folder: Path, scale: float) -> Iterator[dict[str, Any]]:
    """One million lines: new, the same, in another order, one in a hundred another; each format."""
    names = _names(int(1_000_000 * scale))
    other = names[len(names) // 100 :] + [f"new{it}.example.com" for it in range(len(names) // 100)]
    lines = _Source(folder / "lines")
    yield {"source": "all new", **lines.read(_lines(names)), "ok": True}
    for title, text in (
        ("same bytes", _lines(names)),
        ("same order, another comment", "# of today\n" + _lines(names)),
        ("another order", _lines(names[::-1])),
        ("1 % others", _lines(other)),
    ):
        figures = lines.read(text)
        yield {
            "source": title,
            **figures,
            "must": f"<= {MOST_SECONDS} s",
            "ok": figures["wall_s"] <= MOST_SECONDS,
        }
    for name, written in _FORMATS.items():
        some = written(names[: int(OTHERS * scale)])
        figures = _Source(folder / name / "of").read(some, format=name, **_OPTIONS.get(name, {}))
        yield {"source": f"{name}, all new", **figures, "ok": figures["new"] > 0}


INPUTS_CASES = {"inputs": inputs_case}
