"""`hosts`: an address and names in each line, as in /etc/hosts (hosts(5)).

The address says where a name is to be led to, mostly to nowhere; the names are what is listed.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable, Iterator

from hyperbloom.inputs.formats.domains import DOMAIN, domain, domains_of_lines
from hyperbloom.inputs.formats.parsing import LeftOut

__all__ = ["names_of_hosts"]

_ORDINARY = re.compile(rb"(?:0\.0\.0\.0|127\.0\.0\.1|::1?)[ \t]+(%s)[ \t\r]*" % DOMAIN)


def names_of_hosts(chunks: Iterable[bytes], left_out: LeftOut) -> Iterator[list[bytes]]:
    """The names behind addresses, as domains; `localhost` and its like are left out."""
    return domains_of_lines(chunks, left_out, ordinary=_ORDINARY, other=_names)


def _names(line: bytes, left_out: LeftOut) -> list[bytes]:
    words = line.partition(b"#")[0].split()
    if not words:
        return []
    if not _is_address(words[0]):
        left_out["no_address"] += 1
        return []
    return [value for name in words[1:] for value in domain(name, left_out)]


def _is_address(word: bytes) -> bool:
    # `fe80::1%lo0` names an interface, too.
    text = word.partition(b"%")[0].decode("latin-1")
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)
    except (OSError, ValueError):
        return False
    return True
