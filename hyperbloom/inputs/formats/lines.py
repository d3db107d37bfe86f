"""`lines`: one value a line, any bytes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hyperbloom.inputs.formats.parsing import LeftOut, lines_of

__all__ = ["values_of_lines"]

#: Within a value, as in an URL, it is a character as others are.
_COMMENT = re.compile(rb"(?:\A|(?<=[ \t]))#.*", re.DOTALL)


def values_of_lines(chunks: Iterable[bytes], left_out: LeftOut) -> Iterator[list[bytes]]:
    """Lines without white space around and comments: `#` at their beginning or behind a space."""
    for lines in lines_of(chunks, left_out):
        yield [
            value
            for line in lines
            if (value := (_COMMENT.sub(b"", line.lstrip()) if b"#" in line else line).strip())
        ]
