"""Names of hosts and adblock lists: domains in the one spelling of outputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from hyperbloom.inputs.formats.parsing import LeftOut, lines_of
from hyperbloom.outputs import entries

__all__ = ["DOMAIN", "domain", "domains_of_lines"]

#: What a domain looks like in its one spelling; its length is not looked at.
DOMAIN = entries.DOMAIN


def domains_of_lines(
    chunks: Iterable[bytes],
    left_out: LeftOut,
    *,
    ordinary: re.Pattern[bytes],
    other: Callable[[bytes, LeftOut], list[bytes]],
) -> Iterator[list[bytes]]:
    """The domains of a list. The first group of `ordinary` is that of nearly every line.

    The other lines are looked at by `other`, word by word, which counts what it leaves out.
    """
    for lines in lines_of(chunks, left_out):
        values: list[bytes] = []
        for line in lines:
            found = ordinary.fullmatch(line)
            if found is not None and len(found[1]) <= entries.MAX_NAME:
                values.append(found[1])
            else:
                values += other(line, left_out)
        yield values


def domain(name: bytes, left_out: LeftOut) -> list[bytes]:
    """The domain in a list, or an empty list: what is none is counted."""
    try:
        kind, spelled = entries.entry_of(name)
    except entries.LeftOut as reason:
        left_out[str(reason).replace(" ", "_")] += 1
        return []
    if kind != "domain":
        left_out["of_another_kind"] += 1
        return []
    return [spelled]
