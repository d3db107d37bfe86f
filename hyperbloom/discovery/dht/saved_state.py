"""A node's id and table as bytes, for the next start.

A damaged state is no reason not to start: what can be read of it is used, and no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from hyperbloom.addresses import Address, Scope, scope_of
from hyperbloom.discovery.dht.common.contact import ID_BYTES, Contact

__all__ = ["MAX_STATE_NODES", "SavedState", "load_state"]

_VERSION: Final = 1
_HIGHEST_PORT: Final = 65_535

MAX_STATE_NODES: Final = 1_000
"""Nodes of a saved state that are used. A full table of the public network holds about 400."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedState:
    """`node_id` is None where nothing is known, as at a first start."""

    node_id: bytes | None = None
    nodes: tuple[Contact, ...] = ()

    def to_bytes(self) -> bytes:
        """JSON: the id in hex, and id, host and port of each node."""
        nodes = [[node_id.hex(), *address] for node_id, address in self.nodes]
        own = None if self.node_id is None else self.node_id.hex()
        form = {"version": _VERSION, "id": own, "nodes": nodes}
        return json.dumps(form, separators=(",", ":")).encode("ascii")


def load_state(data: bytes) -> SavedState:
    """The state in these bytes; an empty one if there is nothing in them to be used."""
    try:
        form = json.loads(data)
    except (ValueError, RecursionError):
        return SavedState()
    if not isinstance(form, dict) or form.get("version") != _VERSION:
        return SavedState()
    nodes = form.get("nodes")
    return SavedState(
        node_id=_id(form.get("id")),
        nodes=tuple(_contacts(nodes[:MAX_STATE_NODES] if isinstance(nodes, list) else ())),
    )


def _contacts(rows: Iterable[Any]) -> Iterator[Contact]:
    for row in rows:
        match row:
            case [str(digits), str(host), int(port)]:
                node_id = _id(digits)
                usable = scope_of(host) is not Scope.UNUSABLE and 1 <= port <= _HIGHEST_PORT
                if node_id is not None and usable:
                    yield Contact(node_id, Address(host, port))


def _id(digits: Any) -> bytes | None:
    try:
        node_id = bytes.fromhex(digits)
    except (TypeError, ValueError):
        return None
    return node_id if len(node_id) == ID_BYTES else None
