"""Where a request goes: URLs, the addresses of their hosts, and which of them anyone may name.

Who writes a URL into a configuration may name any machine. A server that answers with a redirect
may not: a page of the internet could make the node ask machines that only the node reaches (the
cloud's metadata at 169.254.169.254, an administrator's page of the own network). So every address
of a host that a redirect names is looked at, and the connection goes to one of just these.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import urljoin

from urllib3.exceptions import LocationParseError
from urllib3.util import Url, parse_url

from hyperbloom.https.failures import RequestFailed
from hyperbloom.https.limits import MAX_ADDRESSES

__all__ = [
    "addresses_of",
    "check_public",
    "host_of",
    "is_public",
    "parsed",
    "port_of",
    "redirected",
]

#: Names, and addresses of both kinds, with a zone; names in other letters are A-labels by now.
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_PORTS = {"https": 443, "http": 80}
#: NAT64 (RFC 6052): the last 32 bits are an address of IPv4. 64:ff9b:1::/48 is local (RFC 8215).
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def parsed(url: str, *, http_on_loopback: bool = False) -> Url:
    """A URL in normal form, in ASCII; raises `RequestFailed`.

    Of `http` it is one of this machine: 127.0.0.0/8, ::1 or localhost, and only if the caller
    allows it.
    """
    try:
        found = parse_url(url)
    except LocationParseError:
        raise RequestFailed("this is no URL; write https://HOST/PATH") from None
    host = host_of(found)
    if not _HOST.fullmatch(host) or found.port == 0:
        raise RequestFailed("this is no URL; write https://HOST/PATH")
    if found.auth is not None:
        raise RequestFailed("a URL holds no user name and no password here; leave them out")
    if found.scheme == "https":
        return found
    if found.scheme != "http" or not http_on_loopback or not _is_of_this_machine(host):
        raise RequestFailed(f"{found.scheme}:// is not followed; only https:// is")
    return found


def redirected(url: Url, location: str) -> Url:
    """Where a redirect of `url` leads to; raises `RequestFailed`."""
    try:
        return parsed(urljoin(url.url, location))
    except (RequestFailed, ValueError):
        raise RequestFailed(
            f"{host_of(url)} redirects to what is no https:// URL; ask its owner where the file is"
        ) from None


def host_of(url: Url) -> str:
    """The host without the brackets of IPv6."""
    return (url.host or "").strip("[]")


def port_of(url: Url) -> int:
    """The port, also where the URL names none."""
    return url.port or _PORTS[url.scheme or "https"]


def addresses_of(url: Url) -> list[str]:
    """The addresses of the host, in the resolver's order; raises `RequestFailed`.

    It asks the system's resolver, and takes as long as that takes.
    """
    host = host_of(url)
    try:
        found = socket.getaddrinfo(host, port_of(url), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise RequestFailed(
            f"{host} has no address in the DNS as seen from here; check the name and the resolver"
        ) from None
    return list(dict.fromkeys(str(name[0]) for *_, name in found))[:MAX_ADDRESSES]


def check_public(url: Url, addresses: Iterable[str] = ()) -> None:
    """Raises `RequestFailed` if a redirect may not lead to `url`.

    `addresses`: those that the connection may go to. Where a proxy looks the name up they are not
    known: only a host that is written as an address, or means this machine, can be refused then.
    """
    host = host_of(url)
    literal = _literal(host)
    looked_at = [*addresses] if literal is None else [*addresses, literal]
    if _is_of_this_machine(host) or not all(is_public(address) for address in looked_at):
        raise RequestFailed(
            f"a redirect leads to {host}, which is no machine of the public internet; "
            "if it is meant, write that URL in the configuration"
        )


def check_loopback(address: str) -> None:
    """Raises `RequestFailed` if what http:// would go to is not this machine."""
    if not ipaddress.ip_address(address).is_loopback:
        raise RequestFailed(
            "http:// goes to this machine alone, and localhost is none of it here; write 127.0.0.1"
        )


def is_public(address: str) -> bool:
    """Whether an address is one machine of the public internet (RFC 6890), not of our own."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if found.is_site_local or found.scope_id is not None:
            return False
    return found.is_global and not found.is_multicast and not found.is_reserved


def _literal(host: str) -> str | None:
    """An address that a host is, also in the spellings `0x7f.1` and `2130706433` of old."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host.removesuffix(".")))
    except OSError:
        return None


def _is_of_this_machine(host: str) -> bool:
    name = host.removesuffix(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
