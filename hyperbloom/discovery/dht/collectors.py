"""What a lookup asks each node for, and what of the answers counts.

Whatever a node answers is checked against what was asked, here and nowhere else: an item counts
only with the key asked for, under the target asked for, with a sequence number in range and a
signature that holds; a value only under its own hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Protocol

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.groups import Group, in_turn, internet_network, site_key
from hyperbloom.discovery.dht.common.items import MutableItem, immutable_target, mutable_target
from hyperbloom.discovery.dht.common.messages import FindNode, Get, GetPeers, Query, Response
from hyperbloom.discovery.dht.limits import (
    MAX_PEERS_FOUND,
    MAX_VALUE_BYTES,
    PEERS_PER_NETWORK,
)

__all__ = ["Collector", "ImmutableValue", "MutableItems", "Nodes", "Peers"]


class Collector(Protocol):
    """`query` goes to every node of a lookup, `collect` takes each answer; `target` is their place.

    `collect` tells whether the answer brought something that counts.
    """

    @property
    def target(self) -> bytes: ...

    @property
    def query(self) -> Query: ...

    def collect(self, response: Response, teller: Address) -> bool: ...


class Nodes:
    """Only the nodes on the way are asked for."""

    def __init__(self, target: bytes) -> None:
        self.target = target
        self.query = FindNode(target=target)

    def collect(self, response: Response, teller: Address) -> bool:
        """Nothing: the lookup itself takes the nodes."""
        return False


class MutableItems:
    """All distinct versions of one mutable item.

    Nodes hold different ones, of the same sequence number even, so each counts. Whoever reads only
    the first ones of `found` reads some of every site that told one, for the sites take turns.
    """

    def __init__(self, public_key: bytes, salt: bytes) -> None:
        self.target = mutable_target(public_key, salt)
        self.query = Get(target=self.target)
        self._public_key, self._salt = public_key, salt
        self._found: dict[tuple[int, bytes], MutableItem] = {}
        self._told: dict[Group, dict[tuple[int, bytes], None]] = {}

    @property
    def found(self) -> tuple[MutableItem, ...]:
        """Distinct in sequence number and value, all authentic."""
        versions = dict.fromkeys(in_turn(self._told.values()))
        return tuple(self._found[version] for version in versions)

    def collect(self, response: Response, teller: Address) -> bool:
        """Takes the item of an answer, if it is one of ours."""
        value, seq, signature = response.value, response.seq, response.signature
        if value is None or seq is None or signature is None:
            return False
        if response.public_key != self._public_key or len(value) > MAX_VALUE_BYTES:
            return False
        told = self._told.setdefault(site_key(teller), {})
        if (seq, value) in self._found:
            told[seq, value] = None
            return True
        try:
            item = MutableItem(
                public_key=self._public_key,
                salt=self._salt,
                seq=seq,
                value=value,
                signature=signature,
            )
        except ValueError:
            return False
        if not item.is_authentic():
            return False
        self._found[seq, value] = item
        told[seq, value] = None
        return True


class ImmutableValue:
    """The one value of a hash; `found` is None until a node has it."""

    def __init__(self, target: bytes) -> None:
        self.target = target
        self.query = Get(target=target)
        self.found: bytes | None = None

    def collect(self, response: Response, teller: Address) -> bool:
        """Takes a value that has the hash."""
        value = response.value
        if value is None or len(value) > MAX_VALUE_BYTES:
            return False
        if immutable_target(value) != self.target:
            return False
        self.found = value
        return True


class Peers:
    """Peers of an info hash.

    Nothing proves that they are peers; the handshake shows it. So of one network no more than
    `PEERS_PER_NETWORK` are found, and the sites that told some take turns: nobody's crowd keeps the
    peers that others told out of the `MAX_PEERS_FOUND`.
    """

    def __init__(self, info_hash: bytes) -> None:
        self.target = info_hash
        self.query = GetPeers(info_hash=info_hash)
        self._told: dict[Group, dict[Address, None]] = {}

    @property
    def found(self) -> tuple[Address, ...]:
        """Distinct addresses, at most `MAX_PEERS_FOUND`."""
        return tuple(islice(self._distinct(), MAX_PEERS_FOUND))

    def _distinct(self) -> Iterator[Address]:
        networks: Counter[Group] = Counter()
        for peer in dict.fromkeys(in_turn(self._told.values())):
            network = internet_network(peer)
            if network is not None:
                networks[network] += 1
                if networks[network] > PEERS_PER_NETWORK:
                    continue
            yield peer

    def collect(self, response: Response, teller: Address) -> bool:
        """Takes the peers that this node may name."""
        peers = [peer for peer in response.peers or () if teller.may_name(peer)]
        told = self._told.setdefault(site_key(teller), {})
        for peer in peers[: MAX_PEERS_FOUND - len(told)]:
            told[peer] = None
        return bool(peers)
