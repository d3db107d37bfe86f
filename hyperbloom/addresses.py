"""Addresses as people write them: `HOST:PORT` for peers, endpoint strings for listening."""

from __future__ import annotations

import ipaddress
import re

__all__ = [
    "HIGHEST_PORT",
    "check_interface",
    "check_listen",
    "check_node_listen",
    "format_host_port",
    "network_of",
    "parse_host_port",
]

HIGHEST_PORT = 65_535

_HOST_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?"
    r"(\.[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?)*\.?"
)


def _is_address(text: str, version: int | None = None) -> bool:
    try:
        return version in (None, ipaddress.ip_address(text).version)
    except ValueError:
        return False


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def parse_host_port(text: str) -> tuple[str, int]:
    """Host and port of `example.org:4365`, `192.0.2.1:4365` or `[2001:db8::1]:4365`.

    Raises `ValueError` with a sentence for a person on anything else.
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if bracketed else host
    fits = _is_address(name, 6) if bracketed else bool(_HOST_NAME.fullmatch(name))
    if not colon or not fits or not _is_digits(port) or not 1 <= int(port) <= HIGHEST_PORT:
        raise ValueError(f"{text!r} is not HOST:PORT, for example example.org:4365")
    return name, int(port)


def format_host_port(host: str, port: int) -> str:
    """The inverse of `parse_host_port`: IPv6 addresses in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


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
