"""Formats for what resolves names: `hosts`, `dnsmasq`, `unbound` and `rpz`.

But for `hosts`, a line covers what is below its name, too. So what is allowed below a blocked name
stands in the file as an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hyperbloom.outputs.formats.format import NAMES, EntryFormat, Rendering, per_line

__all__ = ["FORMATS"]

#: Characters of a name in a zone: with `*.` before it and the zone's own name behind it, which may
#: have 60, it is still a name (RFC 1035, section 2.3.4).
_LONGEST_OWNER = 190


def _hosts(slices: Iterable[list[bytes]], rendering: Rendering) -> Iterator[bytes]:
    for names in slices:
        yield per_line(names, b"0.0.0.0 ", b"")


def _dnsmasq(slices: Iterable[list[bytes]], rendering: Rendering) -> Iterator[bytes]:
    yield per_line(rendering.allowed.names, b"server=/", b"/#")
    for names in slices:
        yield per_line(names, b"local=/", b"/")


def _unbound(slices: Iterable[list[bytes]], rendering: Rendering) -> Iterator[bytes]:
    yield b"server:\n"
    yield per_line(rendering.allowed.names, b'local-zone: "', b'." always_transparent')
    for names in slices:
        yield per_line(names, b'local-zone: "', b'." always_nxdomain')


def _rpz(slices: Iterable[list[bytes]], rendering: Rendering) -> Iterator[bytes]:
    yield b"$TTL 300\n@ SOA localhost. nobody.localhost. %d 3600 600 86400 300\n" % rendering.serial
    yield b"@ NS localhost.\n"
    exceptions = list(filter(_is_owner, rendering.allowed.names))
    for name in exceptions:
        yield b"%s CNAME rpz-passthru.\n*.%s CNAME rpz-passthru.\n" % (name, name)
    for names in slices:
        yield b"".join([b"%s CNAME .\n*.%s CNAME .\n" % (name, name) for name in names])


def _is_owner(name: bytes) -> bool:
    """Whether an allowed name may stand in a zone; below `rpz-ip` and its like are no names."""
    return len(name) <= _LONGEST_OWNER and not name.rpartition(b".")[2].startswith(b"rpz-")


FORMATS = (
    EntryFormat(name="hosts", takes="domains", kinds=NAMES, render=_hosts),
    EntryFormat(name="dnsmasq", takes="domains", kinds=NAMES, render=_dnsmasq),
    EntryFormat(name="unbound", takes="domains", kinds=NAMES, render=_unbound),
    EntryFormat(name="rpz", takes="domains", kinds=NAMES, render=_rpz, longest=_LONGEST_OWNER),
)
