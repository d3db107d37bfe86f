"""Formats for what filters packets: `cidr`, `nftables` and `ipset`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from hyperbloom.outputs.formats.format import ADDRESSES, EntryFormat, Rendering, per_line
from hyperbloom.outputs.joined import JoinedNetworks, joined
from hyperbloom.outputs.networks import address_text, networks_of

__all__ = ["FORMATS"]

#: Elements on one line for nft, and lines that are handed on at once.
_SLICE = 1_000

_IPSET_HEAD = """\
create {name}{n} hash:net family {family} maxelem 16777216 -exist
create {name}{n}-new hash:net family {family} maxelem 16777216 -exist
flush {name}{n}-new
"""
_IPSET_END = """\
swap {name}{n}-new {name}{n}
destroy {name}{n}-new
"""
_FAMILIES = ((4, "inet"), (6, "inet6"))

_NFTABLES_HEAD = """\
add table inet {name}
add set inet {name} ipv{n} {{ type ipv{n}_addr; flags interval; }}
flush set inet {name} ipv{n}
"""


def _cidr(slices: Iterable[list[bytes]], rendering: Rendering) -> Iterator[bytes]:
    for part in joined(slices):
        texts = (text for range_ in part.ranges() for text in networks_of(part.version, *range_))
        while some := list(itertools.islice(texts, _SLICE)):
            yield "".join([text + "\n" for text in some]).encode("ascii")


def _nftables(slices: Iterable[list[bytes]], rendering: Rendering) -> Iterator[bytes]:
    """One transaction. Joined before, because a set of intervals refuses those that overlap."""
    name = rendering.set_name
    for part in joined(slices):
        yield _NFTABLES_HEAD.format(name=name, n=part.version).encode("ascii")
        # One command for all: nft takes some times as long where each slice has its own.
        begin = before = f"add element inet {name} ipv{part.version} {{\n"
        elements = _intervals(part)
        while some := list(itertools.islice(elements, _SLICE)):
            yield (before + ", ".join(some)).encode("ascii")
            before = ",\n"
        if before != begin:
            yield b"\n}\n"


def _intervals(part: JoinedNetworks) -> Iterator[str]:
    version = part.version
    for first, last in part.ranges():
        text = address_text(version, first)
        yield text if first == last else f"{text}-{address_text(version, last)}"


def _ipset(slices: Iterable[list[bytes]], rendering: Rendering) -> Iterator[bytes]:
    """New sets are filled and then change places with the old ones, each at once."""
    name = rendering.set_name
    before = {n: f"add {name}{n}-new ".encode("ascii") for n, _ in _FAMILIES}
    for n, family in _FAMILIES:
        yield _IPSET_HEAD.format(name=name, n=n, family=family).encode("ascii")
    for entries in slices:
        four = [entry for entry in entries if b":" not in entry]
        six = [entry for entry in entries if b":" in entry]
        yield per_line(four, before[4], b" -exist")
        yield per_line(six, before[6], b" -exist")
    for n, _ in _FAMILIES:
        yield _IPSET_END.format(name=name, n=n).encode("ascii")


FORMATS = (
    EntryFormat(name="cidr", takes="addresses and networks", kinds=ADDRESSES, render=_cidr),
    EntryFormat(name="nftables", takes="addresses and networks", kinds=ADDRESSES, render=_nftables),
    EntryFormat(name="ipset", takes="addresses and networks", kinds=ADDRESSES, render=_ipset),
)
