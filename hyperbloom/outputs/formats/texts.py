"""Formats that take any text: `lines`, `json` and `csv`."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator

from hyperbloom.outputs.formats.format import TextFormat

__all__ = ["FORMATS"]

# What some reader takes for the end of a line or of the text: control characters, and the line
# separators of Unicode. White space at an end is stripped by many, and # begins a comment.
_LINE = re.compile(
    r"(?![#\s\ufeff])[^\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]+(?<!\s)",
)
_ANY = re.compile(r".*", re.DOTALL)
# Spreadsheets take a cell that begins so for a formula, and run it.
_CELL = re.compile(r"(?!\s*[=+\-@\uff0b\uff0d\uff1d\uff20])[^\x00-\x08\x0b-\x1f\x7f-\x9f]+")


def _lines(slices: Iterable[list[str]]) -> Iterator[bytes]:
    for texts in slices:
        yield "".join([text + "\n" for text in texts]).encode("utf-8")


def _json(slices: Iterable[list[str]]) -> Iterator[bytes]:
    before = "[\n"
    for texts in slices:
        if texts:
            # ASCII alone, everything else escaped; a text a line.
            yield (before + json.dumps(texts, separators=(",\n", ":"))[1:-1]).encode("ascii")
            before = ",\n"
    yield b"[]\n" if before == "[\n" else b"\n]\n"


def _csv(slices: Iterable[list[str]]) -> Iterator[bytes]:
    yield b'"value"\r\n'
    for texts in slices:
        rows = io.StringIO(newline="")
        csv.writer(rows, quoting=csv.QUOTE_ALL).writerows((text,) for text in texts)
        yield rows.getvalue().encode("utf-8")


FORMATS = (
    TextFormat(name="lines", takes="any text of one line", pattern=_LINE, render=_lines),
    TextFormat(name="json", takes="any text", pattern=_ANY, render=_json),
    TextFormat(name="csv", takes="any text but formulas", pattern=_CELL, render=_csv),
)
