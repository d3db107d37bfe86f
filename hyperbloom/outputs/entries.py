"""What a value is: a domain, an address, a network or a mail address, in one spelling.

A value is opaque bytes that somebody wrote. Here it becomes an *entry*: ASCII text in the one
spelling that all tools read alike, or it is left out with a reason. An entry holds letters, digits
and few signs, so no entry can end the place that a format gives it.

- A *domain* has two labels or more, in lower case (A-labels for what is not ASCII, RFC 5891), of
  letters, digits, hyphens and underscores (which DNS has and host names have not), without the dot
  at its end. The last label is one that the DNS can have: letters, or an A-label.
- An *address* is one of IPv4 (four decimal numbers without leading zeros) or IPv6 (RFC 5952).
- A *network* is an address, a slash and the length of its prefix; no bit stands beyond it.
- A *mail address* has a dot-atom (RFC 5322) before the @ and a domain behind it.

Left out as *reserved* is what never names another machine of the internet: a list that held it
would cut the machine off from itself or from its link.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import Literal

import idna

from hyperbloom.errors import HyperbloomError
from hyperbloom.outputs.networks import FAMILY, first_and_last

__all__ = [
    "ADDRESS",
    "DOMAIN",
    "MAIL",
    "MAX_NAME",
    "Kind",
    "LeftOut",
    "entry_of",
    "kind_of",
    "name_of",
    "spelled_out",
]

Kind = Literal["domain", "address", "network", "mail"]

#: Characters of a domain (RFC 1035, section 2.3.4, without the dots around it), and of any entry.
MAX_NAME = 253
#: Bytes of a value that are looked at: a U-label's character has four at most.
_LONGEST_SPELLING = 4 * MAX_NAME
#: Characters before the @ (RFC 5321, section 4.5.3.1.1).
_MAX_LOCAL = 64
#: Networks with a shorter prefix hold more of the internet than any list means.
_SHORTEST_PREFIX = {4: 8, 6: 16}

#: Names of the machine itself and of its own network (RFC 6761, RFC 6762, RFC 9476), and of reverse
#: lookups (RFC 3172).
_RESERVED_NAMES = rb"arpa|internal|local|localdomain|localhost"
#: This network, the machine, its link, multicast and what follows (RFC 6890).
_RESERVED_NETWORKS = {
    4: ("0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3"),
    6: ("::/16", "fe80::/10", "ff00::/8"),
}
_RESERVED_RANGES = {
    version: [first_and_last(version, network) for network in networks]
    for version, networks in _RESERVED_NETWORKS.items()
}

_LABEL = rb"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
_LAST_LABEL = rb"(?:[a-z]{2,63}|xn--[a-z0-9](?:[a-z0-9-]{0,57}[a-z0-9])?)"
_NUMBER = rb"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ATOM = rb"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

#: These take the one spelling of each kind, what is reserved excepted; of a name any length.
DOMAIN = rb"(?:%s\.)+(?!(?:%s)\Z)%s" % (_LABEL, _RESERVED_NAMES, _LAST_LABEL)
ADDRESS = rb"(?!(?:0|127|169\.254|22[4-9]|2[345][0-9])\.)%s(?:\.%s){3}" % (_NUMBER, _NUMBER)
MAIL = rb"(?=[^@]{1,%d}@)%s(?:\.%s)*@%s" % (_MAX_LOCAL, _ATOM, _ATOM, DOMAIN)

_DOMAIN = re.compile(DOMAIN)
_MAIL = re.compile(MAIL)
_NAME = re.compile(rb"(?:%s\.)*%s" % (_LABEL, _LABEL))
_ENDS_IN_A_NUMBER = re.compile(rb"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)", re.DOTALL)


class LeftOut(HyperbloomError, ValueError):
    """A value is no entry; the message is the reason, a few words that are counted."""


def entry_of(value: bytes) -> tuple[Kind, bytes]:
    """A value's kind and its one spelling; raises `LeftOut`."""
    if len(value) > _LONGEST_SPELLING:
        raise LeftOut("too long")
    if b"@" in value:
        return "mail", _mail(value)
    if b"/" in value:
        return "network", _network(value)
    if b":" in value or _ENDS_IN_A_NUMBER.fullmatch(value):
        return "address", _address(value)
    return "domain", _domain(value)


def kind_of(entry: bytes) -> Kind:
    """The kind of what is an entry already."""
    if b"@" in entry:
        return "mail"
    if b"/" in entry:
        return "network"
    return "address" if b":" in entry or not entry.strip(b"0123456789.") else "domain"


def spelled_out(value: bytes) -> bytes:
    """A name in lower case and in A-labels, without a dot at its end; raises `LeftOut`."""
    name = value.lower()
    if not value.isascii():
        try:
            # UTS 46 maps what people type (capitals, wide letters) to what IDNA takes.
            name = idna.encode(value.decode("utf-8"), uts46=True)
        except UnicodeError:  # what idna raises is one, too
            raise LeftOut("of no known kind") from None
    return name.removesuffix(b".")


def name_of(value: bytes) -> bytes:
    """A name of one label or more, whatever it is reserved for; raises `LeftOut`."""
    name = spelled_out(value) if len(value) <= _LONGEST_SPELLING else b""
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME:
        raise LeftOut("of no known kind")
    return name


def _domain(value: bytes) -> bytes:
    name = spelled_out(value)
    if not _DOMAIN.fullmatch(name):
        if _NAME.fullmatch(name) and re.fullmatch(_RESERVED_NAMES, name.rpartition(b".")[2]):
            raise LeftOut("reserved")
        raise LeftOut("of no known kind")
    if len(name) > MAX_NAME:
        raise LeftOut("too long")
    return name


def _mail(value: bytes) -> bytes:
    local, _, domain = value.rpartition(b"@")
    mail = local + b"@" + _domain(domain)
    if not _MAIL.fullmatch(mail):
        raise LeftOut("of no known kind")
    if len(mail) > MAX_NAME:
        raise LeftOut("too long")
    return mail


def _address(value: bytes) -> bytes:
    version = 6 if b":" in value else 4
    try:
        packed = socket.inet_pton(FAMILY[version], value.decode("ascii"))
    except (ValueError, OSError):  # with a NUL in it it is a ValueError
        raise LeftOut("of no known kind") from None
    if _is_reserved(version, packed):
        raise LeftOut("reserved")
    return socket.inet_ntop(FAMILY[version], packed).encode("ascii")


def _is_reserved(version: int, packed: bytes) -> bool:
    number = int.from_bytes(packed)
    return any(first <= number <= last for first, last in _RESERVED_RANGES[version])


def _network(value: bytes) -> bytes:
    try:
        interface = ipaddress.ip_interface(value.decode("ascii"))
    except ValueError:
        raise LeftOut("of no known kind") from None
    network = interface.network
    # A netmask behind the slash and `08` are no length, and no network has a zone.
    if b"%" in value or value.partition(b"/")[2] != b"%d" % network.prefixlen:
        raise LeftOut("of no known kind")
    if network.prefixlen < _SHORTEST_PREFIX[network.version]:
        raise LeftOut("a network that covers too much")
    first, last = int(network[0]), int(network[-1])
    if any(first <= end and begin <= last for begin, end in _RESERVED_RANGES[network.version]):
        raise LeftOut("reserved")
    if interface.ip != network.network_address:
        raise LeftOut("a network with bits beyond its prefix")
    return str(network).encode("ascii")
