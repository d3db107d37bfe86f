"""What is new in a source and what has gone from it, against the values of an earlier reading.

Mostly a source holds the same values in the same order. So it is compared as it comes, slice by
slice, with a file that is in the order of the source, and memory is one slice. From where they
differ on, all values are in memory, each once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

__all__ = ["Difference", "compare"]

_UNSEEN: Final = 0
_SEEN: Final = 1
_FILES: Final = ("new", "gone", "next")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How many values a source has, and how many of them are `new` and have `gone`."""

    values: int
    new: int
    gone: int


def compare(slices: Iterable[list[bytes]], known: Path, folder: Path) -> Difference:
    """Compare a source with the file `known`; raises `OSError`, and what `slices` raises.

    `known` holds values that end with LF, in any order, and need not be there. Where something
    is new or has gone, and where `known` is not there, `folder` has the synced files `new`, `gone`
    and `next` afterwards, which hold each value once; `next` are all of the source in its order.
    """
    try:
        file = known.open("rb")
    except FileNotFoundError:
        found = _differences(iter(slices), b"", [], folder)
        _keep(folder)
        return found
    with file:
        found = _compare(slices, file, folder)
    if found.new or found.gone:
        _keep(folder)
    else:
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
    return found


def _compare(slices: Iterable[list[bytes]], file: BinaryIO, folder: Path) -> Difference:
    count = 0
    remaining = iter(slices)
    for values in remaining:
        at = file.tell()
        joined = b"\n".join(values) + b"\n"
        if file.read(len(joined)) != joined:
            return _differences(_with(values, remaining), *_parts(file, at), folder)
        count += len(values)
    at = file.tell()
    if at == os.fstat(file.fileno()).st_size:
        return Difference(values=count, new=0, gone=0)
    return _differences(iter(()), *_parts(file, at), folder)


def _parts(file: BinaryIO, at: int) -> tuple[bytes, list[bytes]]:
    file.seek(0)
    return file.read(at), file.read().split(b"\n")


def _with(values: list[bytes], remaining: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    yield values
    yield from remaining


def _differences(
    slices: Iterator[list[bytes]], same: bytes, others: list[bytes], folder: Path
) -> Difference:
    """`same` are the values that begin both; `others` follow in what was known."""
    state = dict.fromkeys(others, _UNSEEN)
    begun = dict.fromkeys(same.split(b"\n"), _SEEN)
    state |= begun
    del state[b""]
    del others
    new = 0
    with ExitStack() as files:
        news, nexts = (files.enter_context((folder / it).open("wb")) for it in ("new", "next"))
        _write(nexts, [value for value in begun if value])
        count = len(begun) - 1
        del begun
        for values in slices:
            added: list[bytes] = []
            kept: list[bytes] = []
            for value in values:
                known = state.get(value)
                if known == _SEEN:
                    continue
                state[value] = _SEEN
                kept.append(value)
                if known is None:
                    added.append(value)
            _write(nexts, kept)
            _write(news, added)
            count, new = count + len(kept), new + len(added)
        gone = [value for value, seen in state.items() if seen == _UNSEEN]
        _write(files.enter_context((folder / "gone").open("wb")), gone)
    return Difference(values=count, new=new, gone=len(gone))


def _write(file: BinaryIO, values: list[bytes]) -> None:
    if values:
        file.write(b"\n".join(values) + b"\n")


def _keep(folder: Path) -> None:
    """Bring the files to the disk, and then their names."""
    for path in (*(folder / name for name in _FILES), folder):
        number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(number)
        finally:
            os.close(number)
