"""Nodes of other programs on 127.0.0.1: libtorrent, bittorrent-dht; and our own, run from here.

Of the others, those that a machine cannot run raise `UnavailableError`, which names the reason.
"""

from __future__ import annotations

import hashlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from make_peers import DHT_NODES
from npm_peer import CACHE, NpmPeer, UnavailableError, install
from twisted.internet.defer import Deferred
from twisted.internet.selectreactor import SelectReactor

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common import bencode
from hyperbloom.discovery.dht.common.items import MutableItem
from hyperbloom.discovery.dht.common.krpc import decode_packet, encode_packet
from hyperbloom.discovery.dht.common.messages import Get, Packet, PutMutable, Response
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht_node import DhtNode
from hyperbloom.keys import Identity

HOST = "127.0.0.1"
WAIT_SECONDS = 240.0
LOOKUP_SECONDS = 30.0


class Nodes:
    """Our own nodes, on a reactor of their own that runs while something is waited for."""

    def __init__(self) -> None:
        self.reactor = SelectReactor()
        self.nodes: list[DhtNode] = []

    def start(self, **settings: Any) -> DhtNode:
        """A node that listens on a free port, and is patient: others share this machine."""
        chosen = DhtSettings(query_seconds=5.0, lookup_seconds=LOOKUP_SECONDS, **settings)
        node = DhtNode(self.reactor, chosen, random_bytes=os.urandom)
        node.listen(0, HOST)
        self.nodes.append(node)
        return node

    def wait(self, deferred: Deferred[Any], seconds: float = WAIT_SECONDS) -> Any:
        """The result; raises what it failed with."""
        results: list[Any] = []
        failures: list[Any] = []
        deferred.addCallbacks(results.append, failures.append)
        self.until(lambda: bool(results or failures), seconds)
        if failures:
            failures[0].raiseException()
        return results[0]

    def until(self, is_so: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        """Run until it is so."""
        ends = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > ends:
                raise TimeoutError(f"not so in {seconds} s")
            self.reactor.iterate(0.02)

    def stop(self) -> None:
        for node in self.nodes:
            self.wait(node.stop())
        self.reactor.iterate(0)


def libtorrent() -> Any:
    """The module."""
    try:
        import libtorrent as module
    except ImportError as error:
        raise UnavailableError(f"libtorrent is not installed ({error})") from error
    return module


class LibtorrentNode:
    """One libtorrent session with nothing but its DHT."""

    def __init__(self) -> None:
        self._lt = lt = libtorrent()
        loose = ("restrict_routing_ips", "restrict_search_ips", "ignore_dark_internet",
                 "prefer_verified_node_ids", "enforce_node_id")  # fmt: skip
        settings = {f"dht_{name}": False for name in loose}
        settings |= {f"enable_{name}": False for name in ("lsd", "upnp", "natpmp")}
        # All nodes here share one address, and would ban each other.
        settings |= {"dht_block_ratelimit": 10**6, "dht_upload_rate_limit": 10**8}
        settings |= {
            "dht_bootstrap_nodes": "",
            "enable_dht": True,
            "listen_interfaces": f"{HOST}:0",
            "alert_mask": lt.alert.category_t.all_categories,
        }
        self.session = lt.session(settings)
        deadline = time.monotonic() + WAIT_SECONDS
        while not (self.session.listen_port() and self.session.is_dht_running()):
            if time.monotonic() > deadline:
                raise TimeoutError("libtorrent does not listen")
            time.sleep(0.02)
        self.address = Address(HOST, self.session.listen_port())

    def join(self, address: Address) -> None:
        self.session.add_dht_node(tuple(address))

    def put(self, owner: Identity, salt: bytes, value: bytes) -> None:
        """Put a string; libtorrent counts seq on from what it finds."""
        secret = bytearray(hashlib.sha512(owner.seed).digest())
        secret[0] &= 248
        secret[31] = secret[31] & 63 | 64
        self.session.dht_put_mutable_item(bytes(secret), owner.public_key, value, salt)
        self._wait_for("dht_put_alert", lambda alert: True)

    def get(self, public_key: bytes, salt: bytes) -> tuple[int, Any]:
        """Sequence number and value of what it finds."""
        self.session.dht_get_mutable_item(public_key, salt)
        found: tuple[int, Any] = self._wait_for(
            "dht_mutable_item_alert",
            lambda alert: (alert.seq, alert.item) if alert.authoritative else None,
        )
        return found

    def stop(self) -> None:
        """Closed when the last reference goes."""
        self.session.pause()
        del self.session

    def _wait_for(self, name: str, read: Callable[[Any], Any]) -> Any:
        """What `read` makes of the first alert of this name of which it makes anything.

        Alerts are read at once: the next `pop_alerts` takes their memory back.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            self.session.wait_for_alert(100)
            alerts = self.session.pop_alerts()
            told = [read(alert) for alert in alerts if type(alert).__name__ == name]
            found = [one for one in told if one is not None]
            if found:
                return found[0]
        raise TimeoutError(f"no {name} in {WAIT_SECONDS} s")


def bittorrent_dht() -> NpmPeer:
    """A process with nodes of bittorrent-dht; see dht/driver.js for its commands."""
    modules: Path = install(CACHE, manifests=DHT_NODES)
    return NpmPeer(modules, driver=DHT_NODES / "driver.js")


class RawAsker:
    """Asks one node at a time, by hand, with whatever the tests think up."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((HOST, 0))
        self._socket.settimeout(240)
        self._id = os.urandom(20)

    def ask(self, message: Any, address: Address) -> Any:
        """The message that answered."""
        packet = Packet(
            transaction_id=os.urandom(4), message=message, node_id=self._id, read_only=True
        )
        self._socket.sendto(encode_packet(packet), address)
        while True:
            data, sender = self._socket.recvfrom(4_096)
            answer = decode_packet(data)
            if sender == tuple(address) and answer.transaction_id == packet.transaction_id:
                return answer.message

    def put(self, item: MutableItem, address: Address, *, cas: int | None = None) -> Any:
        """Place an item on one node; its answer."""
        found = self.ask(Get(target=item.target), address)
        assert isinstance(found, Response)
        assert found.token is not None
        return self.ask(
            PutMutable(
                token=found.token,
                public_key=item.public_key,
                salt=item.salt,
                seq=item.seq,
                value=item.value,
                signature=item.signature,
                cas=cas,
                target=item.target,
            ),
            address,
        )

    def held(self, item: MutableItem, address: Address) -> bytes | None:
        """The value that a node holds where this item would be, without its length."""
        found = self.ask(Get(target=item.target), address)
        value = None if found.value is None else bencode.decode(found.value)
        return value if isinstance(value, bytes) else None

    def close(self) -> None:
        self._socket.close()
