"""What an operator sets under `[objects]`."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hyperbloom.addresses import Address
from hyperbloom.objects.classes.declarations import Declaration

__all__ = ["DEFAULT_OBJECTS_LISTEN", "HASH_RULES", "ObjectsSettings", "is_loopback"]

#: 6000 is the JVM implementation's port.
DEFAULT_OBJECTS_LISTEN = ("tcp:6000:interface=127.0.0.1",)
#: The values of `hyperbloom.objects.classes.hashes.HashRule`, repeated so that reading a
#: configuration does not load the pool; a test compares the two.
HASH_RULES = ("text", "jvm")


def _number(default: float, least: float, text: str, most: float | None = None) -> Any:
    bounds = {"min": least} if most is None else {"min": least, "max": most}
    return field(default=default, metadata={"help": text, **bounds})


def _word(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


def is_loopback(endpoint: str) -> bool:
    """Whether an endpoint such as `tcp:6000:interface=127.0.0.1` is for this machine alone."""
    for part in endpoint.replace("\\:", "\0").split(":"):
        name, _, host = part.partition("=")
        if name == "interface":
            try:
                return ipaddress.ip_address(host.replace("\0", ":")).is_loopback
            except ValueError:
                return host == "localhost"
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectsSettings:
    """The `[objects]` table. `passphrase_file` given means the AES flag."""

    enabled: bool = _word(False, "take part in an object pool at all")
    listen: tuple[str, ...] = _word(
        DEFAULT_OBJECTS_LISTEN, "where peers of the pool are let in; an empty list: only dial"
    )
    peers: tuple[str, ...] = _word((), "`HOST:PORT` of nodes that may be this one's parents")
    passphrase_file: Path | None = field(
        default=None,
        metadata={
            "help": "a file of one line that nobody else may read; with it messages have the AES "
            "flag"
        },
    )
    hash_rule: str = _word(
        HASH_RULES[0],
        "`text`: hashes by the protocol's text; `jvm`: as the JVM implementation adds their bytes",
    )
    types: tuple[str, ...] = _word(
        (),
        "classes of Java programs, each as `Person(String name, int age)`: their fields in the "
        "order in which `Objects.hash` takes them",
    )
    parents: int = _number(2, 1, "how many of `peers` to be connected with at one time", 64)
    version: int = _number(
        1, 0, "told to peers as the version of this program's objects", 2**31 - 1
    )
    objects: int = _number(1_000_000, 1, "objects in the pool beyond which none is taken")
    disk_bytes: int = _number(
        1_073_741_824,
        1_048_576,
        "what the pool takes on disk, counted as the most that its records may: three quarters "
        "for objects (an eighth of that for this node's own programs alone), the rest to "
        "remember past versions",
    )
    peer_disk_bytes: int = _number(
        402_653_184,
        65_536,
        "what the objects take of it that came from one network (an IPv4 address, or one /64) of "
        "those who dial this node; `peers` have no such bound",
    )
    connections: int = _number(64, 1, "connections that are let in; each costs a file descriptor")
    connections_per_address: int = _number(16, 1, "the same from one address (of IPv6: one /64)")
    unwritten_bytes: int = _number(
        2_097_152, 65_536, "objects of one peer that wait for the disk before reading is paused"
    )
    queued_bytes: int = _number(
        8_388_608, 65_536, "what may wait for a peer that reads slowly before it is kicked"
    )
    handshake_seconds: float = _number(10.0, 0.1, "a connection must be open after this long")
    close_seconds: float = _number(5.0, 0.1, "how long a closing connection may take to flush")
    ping_seconds: float = _number(20.0, 0.1, "time between two PINGs")
    silence_seconds: float = _number(
        60.0, 0.2, "a peer that says nothing for this long is taken for gone"
    )
    probe_seconds: float = _number(
        300.0, 1, "how often another one of `peers` is tried, for it may be faster"
    )
    retry_first: float = _number(1.0, 0.01, "seconds before a lost peer is dialled again")
    retry_longest: float = _number(300.0, 0.01, "longest such wait, reached by backing off")

    def __post_init__(self) -> None:
        if self.hash_rule not in HASH_RULES:
            raise ValueError(f"hash_rule is text or jvm, not {self.hash_rule!r}")
        for address in self.peers:
            Address.parse(address)
        names = [Declaration.parse(text).name for text in self.types]
        if len(set(names)) < len(names):
            raise ValueError("types declares a name twice")
