"""`csv`: one column of comma-separated values (RFC 4180)."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator

from hyperbloom.inputs.formats.parsing import LeftOut, Parse, SourceRefused, lines_of
from hyperbloom.inputs.limits import MAX_LINE_BYTES, MAX_ROW_BYTES

__all__ = ["column_of"]

_ROWS_OF_A_SLICE = 10_000
#: Bytes that are no UTF-8 go through text and back as they are.
_BYTES_AS_TEXT = "surrogateescape"


def column_of(column: str) -> Parse:
    """What reads one column: a number from 1, or the name that it has in the first row."""

    def values(chunks: Iterable[bytes], left_out: LeftOut) -> Iterator[list[bytes]]:
        return _Rows(chunks, left_out).values(column)

    return values


class _Rows:
    """Rows of a source; comments and empty lines between rows are none."""

    def __init__(self, chunks: Iterable[bytes], left_out: LeftOut) -> None:
        self._lines = lines_of(chunks, left_out)
        self._left_out = left_out
        self._bytes_of_row = 0

    def values(self, column: str) -> Iterator[list[bytes]]:
        """The fields of a column, white space around them dropped; empty ones are no values."""
        rows = self._rows()
        place = int(column) - 1 if column.isascii() and column.isdecimal() else -1
        if place < 0:
            names = [name.strip() for name in next(rows, [])]
            if column not in names:
                raise SourceRefused(
                    f"no column of the first line is called {column!r}; "
                    "correct `column`, or give its number"
                )
            place = names.index(column)
        found: list[bytes] = []
        for row in rows:
            if place >= len(row):
                self._left_out["no_column"] += 1
            elif value := row[place].encode("utf-8", _BYTES_AS_TEXT).strip():
                found.append(value)
            if len(found) >= _ROWS_OF_A_SLICE:
                yield found
                found = []
        yield found

    def _rows(self) -> Iterator[list[str]]:
        csv.field_size_limit(MAX_LINE_BYTES)
        reader = csv.reader(self._texts())
        while True:
            self._bytes_of_row = 0
            try:
                row = next(reader)
            except StopIteration:
                return
            except csv.Error:
                # Mostly a quote that has no end made a field too long; the next line is a row.
                self._left_out["no_csv"] += 1
                continue
            if row:
                yield row

    def _texts(self) -> Iterator[str]:
        for lines in self._lines:
            for line in lines:
                if not self._bytes_of_row and line.lstrip()[:1] in (b"", b"#"):
                    continue
                self._bytes_of_row += len(line) + 1
                if self._bytes_of_row > MAX_ROW_BYTES:
                    raise SourceRefused(
                        f"a row is longer than {MAX_ROW_BYTES} bytes; look for a quote too many"
                    )
                yield line.decode("utf-8", _BYTES_AS_TEXT) + "\n"
