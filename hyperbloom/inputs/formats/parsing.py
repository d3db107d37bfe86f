"""What the formats share: lines of bounded length, and what no value may hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.inputs.limits import MAX_LINE_BYTES, MAX_VALUES

__all__ = ["LeftOut", "Parse", "SourceRefused", "lines_of", "sound_values"]

#: How many entries of a source were left out, by reason: words with underscores.
LeftOut = Counter[str]

#: From slices of any size to values in the order of the source, in slices; counts what it leaves
#: out. Raises `SourceRefused` alone, whatever the bytes are.
Parse = Callable[[Iterable[bytes], LeftOut], Iterator[list[bytes]]]

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class SourceRefused(HyperbloomError):
    """A source cannot be read; the message is one sentence with its cure, without its own words."""

    kind = ErrorKind.FAILED


def lines_of(chunks: Iterable[bytes], left_out: LeftOut) -> Iterator[list[bytes]]:
    """Lines without their LF; what is longer than `MAX_LINE_BYTES` is never held as a whole."""
    tail, begun, skipping = b"", False, False
    for chunk in chunks:
        some = chunk
        if skipping:
            _, ended, some = chunk.partition(b"\n")
            skipping = not ended
        lines = (tail + some).split(b"\n")
        tail = lines.pop()
        if len(tail) > MAX_LINE_BYTES:
            left_out["too_long_line"] += 1
            tail, skipping = b"", True
        if lines:
            yield _short(lines, left_out, begun=begun)
            begun = True
    if tail:
        yield _short([tail], left_out, begun=begun)


def _short(lines: list[bytes], left_out: LeftOut, *, begun: bool) -> list[bytes]:
    if not begun:
        lines[0] = lines[0].removeprefix(_BYTE_ORDER_MARK)
    if max(map(len, lines)) <= MAX_LINE_BYTES:
        return lines
    short = [line for line in lines if len(line) <= MAX_LINE_BYTES]
    left_out["too_long_line"] += len(lines) - len(short)
    return short


def sound_values(
    slices: Iterable[list[bytes]], left_out: LeftOut, max_value_bytes: int
) -> Iterator[list[bytes]]:
    """Those that hold neither CR, LF nor NUL and are not too long; no empty ones, no empty slice.

    Raises `SourceRefused` with the first value beyond `MAX_VALUES`.
    """
    count = 0
    for values in slices:
        joined = b"\n".join(values)
        sound = values
        if b"\r" in joined or b"\0" in joined or joined.count(b"\n") >= len(values) > 0:
            sound = [value for value in values if not _breaks_a_line(value)]
            left_out["line_end_or_nul"] += len(values) - len(sound)
        if sound and max(map(len, sound)) > max_value_bytes:
            short = [value for value in sound if len(value) <= max_value_bytes]
            left_out["too_long"] += len(sound) - len(short)
            sound = short
        count += len(sound)
        if count > MAX_VALUES:
            raise SourceRefused(
                f"the source has more than {MAX_VALUES} values; divide it into several"
            )
        if sound:
            yield sound


def _breaks_a_line(value: bytes) -> bool:
    return b"\n" in value or b"\r" in value or b"\0" in value
