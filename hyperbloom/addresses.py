"""Where somebody can be reached: `Address`, and the forms in which people write one.

An `Address` is made where it comes in, of a packet's bytes, of a socket or of text, and goes on as
it is until a connection is opened to it or a person reads it. How far away an address can be
reached from (`Scope`) decides who may name it: nobody is sent to an address nearer than who named
it.
"""

from __future__ import annotations

import ipaddress
import re
from enum import IntEnum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, NamedTuple

__all__ = [
    "HIGHEST_PORT",
    "Address",
    "Scope",
    "check_interface",
    "check_listen",
    "check_node_listen",
    "network_of",
    "scope_of",
]

HIGHEST_PORT: Final = 65_535

_HOST_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
    r"(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)
_THIS_NETWORK: Final = IPv4Network("0.0.0.0/8")
_NAT64: Final = IPv6Network("64:ff9b::/96")


class Scope(IntEnum):
    """How far away an address can be reached from."""

    UNUSABLE = 0
    """Multicast, unspecified, reserved, IPv4 within IPv6 (which hides its scope): nobody is there.
    """
    LOOPBACK = 1
    LINK = 2
    """Of one link, as where nobody gives addresses out, and services of a cloud to its machines."""
    PRIVATE = 3
    """Of a site or a provider's inner network."""
    GLOBAL = 4


class Address(NamedTuple):
    """A host and a port; of TCP or UDP, as the place says.

    `host` is an IPv4 or IPv6 address in the form that `ipaddress` writes. Where a person has named
    it, in a configuration, an invitation or a command, it may be a host name.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`example.org:4365`, `192.0.2.1:4365` or `[2001:db8::1]:4365`.

        Raises `ValueError` with a sentence for a person on anything else.
        """
        host, colon, port = text.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        name = host[1:-1] if bracketed else host
        fits = _is_address(name, 6) if bracketed else bool(_HOST_NAME.fullmatch(name))
        if not colon or not fits or not _is_digits(port) or not 1 <= int(port) <= HIGHEST_PORT:
            raise ValueError(f"{text!r} is not HOST:PORT, for example example.org:4365")
        return cls(str(IPv6Address(name)) if bracketed else name, int(port))

    def __str__(self) -> str:
        """HOST:PORT, as `parse` reads it: IPv6 addresses in brackets."""
        return f"[{self.host}]:{self.port}" if self.is_ipv6 else f"{self.host}:{self.port}"

    @property
    def is_ipv6(self) -> bool:
        """Whether the host is an IPv6 address."""
        return ":" in self.host

    @property
    def is_wildcard(self) -> bool:
        """Whether it stands for every address of the machine that listens at it."""
        return self.host in ("0.0.0.0", "::")  # noqa: S104  nothing listens here

    @property
    def scope(self) -> Scope:
        """How far away the host can be reached from; a name is unusable."""
        return scope_of(self.host)

    @property
    def network(self) -> str:
        """Whose addresses the host is among, see `network_of`."""
        return network_of(self.host)

    @property
    def is_dialable(self) -> bool:
        """Whether others could dial it: an IP address that means the same to them, and a port.

        Private and loopback addresses are: nodes of one network or one machine find each other by
        them. A link-local IPv6 address is not, since it needs a zone.
        """
        needs_zone = "%" in self.host or (self.is_ipv6 and self.scope is Scope.LINK)
        return (
            self.scope is not Scope.UNUSABLE and not needs_zone and 1 <= self.port <= HIGHEST_PORT
        )

    def may_name(self, other: Address) -> bool:
        """Whether somebody who is here may send us to `other`.

        Nobody is sent by somebody further out to an address further in: a stranger on the internet
        has no business to point at our loopback or our site.
        """
        scope = other.scope
        return scope is not Scope.UNUSABLE and scope >= self.scope


def _is_address(text: str, version: int | None = None) -> bool:
    try:
        return version in (None, ipaddress.ip_address(text).version)
    except ValueError:
        return False


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


@lru_cache(maxsize=8_192)
def scope_of(host: str) -> Scope:
    """The scope of an IP address in text form; what is no address is unusable."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return Scope.UNUSABLE
    if address.is_loopback:
        return Scope.LOOPBACK
    if address.is_multicast or address.is_unspecified or _is_no_place(address):
        return Scope.UNUSABLE
    if address.is_link_local:
        return Scope.LINK
    if address.is_global:
        return Scope.GLOBAL
    return Scope.PRIVATE


def _is_no_place(address: IPv4Address | IPv6Address) -> bool:
    """Reserved (0/8 and 240/4), or IPv4 within IPv6."""
    if isinstance(address, IPv4Address):
        return address.is_reserved or address in _THIS_NETWORK
    within = address.ipv4_mapped or address.sixtofour or address.teredo
    return within is not None or address in _NAT64


def check_interface(text: str) -> str:
    """The text itself if it is empty or an IP address, else `ValueError`."""
    if text and not _is_address(text):
        raise ValueError(f"{text!r} is no IP address of this machine, for example 192.0.2.1")
    return text


def check_listen(text: str) -> str:
    r"""The text itself if it is `tcp:PORT`, maybe with `:interface=ADDRESS`, else `ValueError`.

    The form is Twisted's server endpoint description; a colon within an IPv6 address is written
    `\:`. Port 0 lets the system choose.
    """
    kind, *parts = re.split(r"(?<!\\):", text)
    port = parts[0].removeprefix("port=") if parts else ""
    if kind not in ("tcp", "tcp6") or not _is_digits(port) or int(port) > HIGHEST_PORT:
        raise ValueError(f"{text!r} is not tcp:PORT or tcp:PORT:interface=ADDRESS")
    for part in parts[1:]:
        name, _, value = part.partition("=")
        if name == "interface" and _is_address(value.replace("\\:", ":")):
            continue
        if name == "backlog" and _is_digits(value):
            continue
        raise ValueError(
            f"{text!r}: {part!r} is not interface=ADDRESS with an address of this machine"
        )
    return text


def check_node_listen(text: str) -> str:
    """As `check_listen`, or `systemd`: the ports that systemd hands over."""
    return text if text == "systemd" else check_listen(text)


def network_of(host: str) -> str:
    """Whose addresses a host is among: an IPv4 address itself, of IPv6 the /64.

    A customer gets at least a /64 (RFC 6177), and so has as many addresses as there are. An IPv4
    address that is written as IPv6 (`::ffff:192.0.2.1`) is the IPv4 address. What is no address,
    such as the name of a transport that is none of IP, is its own network.
    """
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address) >> 64 << 64, 64)))
