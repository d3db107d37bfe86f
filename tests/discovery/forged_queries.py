"""A real node, and somebody who asks it in the names of others; run by `test_dht_prefix_attacks`.

    python forged_queries.py HOST SOURCES COUNT SECONDS

SOURCES: `network` (one /64), `site` (1,000 /64s of one /48) or `sites` (1,000 /48s). The node
listens at HOST, knows eight nodes and holds an item of 1,000 bytes, so that its answers are the
longest there are. Prints a JSON line: bytes and packets sent, bytes that came back (answers and
pings), and packets that the node read.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from dht_attacker import ManySources, addresses, forged, query, sites, token_in
from twisted.internet.selectreactor import SelectReactor

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.items import MAX_SEQ, sign_item
from hyperbloom.discovery.dht.saved_state import SavedState
from hyperbloom.discovery.dht.settings import DhtSettings
from hyperbloom.discovery.dht_node import DhtNode
from hyperbloom.keys import Identity

PORT = 6881
ITEM = sign_item(Identity(b"o" * 32), salt=b"", seq=MAX_SEQ, value=b"996:" + b"v" * 996)
#: Where the item is put from, by somebody who is really there.
WRITER = "2a03:1::1"
SOURCES = {
    "network": lambda: addresses("2a02:db8:1::/64", hosts=20_000),
    "site": lambda: addresses("2a02:db8:1::/48", networks=1_000, hosts=20),
    "sites": lambda: sites("2a02:db8::/32", 1_000, hosts=20),
}


def attack(kind: str, host: str, count: int, seconds: float, told: dict[str, Any]) -> None:
    """Put the item, then ask for it in the names of others, evenly over the time."""
    node = (host, PORT)
    writer = ManySources(4_000)
    get = query("get", t=b"gggg", node_id=b"w" * 20, read_only=True, target=ITEM.target)
    writer.send(get, WRITER, node)
    while not writer.last:
        time.sleep(0.01)
    put = query(
        "put", t=b"pppp", node_id=b"w" * 20, read_only=True, token=token_in(writer.last),
        k=ITEM.public_key, seq=MAX_SEQ, sig=ITEM.signature, v=b"v" * 996,
    )  # fmt: skip
    writer.send(put, WRITER, node)
    time.sleep(0.5)
    writer.close()
    attacker, began = ManySources(4_001), time.monotonic()
    for number, (data, source) in enumerate(forged(SOURCES[kind](), ITEM.target, count=count)):
        attacker.send(data, source[0], node)
        ahead = number / count * seconds - (time.monotonic() - began)
        if ahead > 0.005:
            time.sleep(ahead)
    time.sleep(1.0)
    told.update(sent=attacker.sent, got=attacker.got, packets=count)


def main(host: str, kind: str, count: str, seconds: str) -> None:
    """See the module's text."""
    known = tuple(Contact(bytes([n]) * 20, Address(f"2a04:{n}::1", PORT)) for n in range(1, 9))
    reactor = SelectReactor()
    node = DhtNode(
        reactor,
        DhtSettings(),
        random_bytes=os.urandom,
        state=SavedState(nodes=known).to_bytes(),
    )
    node.listen(PORT, host)
    told: dict[str, Any] = {}
    arguments = (kind, host, int(count), float(seconds), told)
    thread = threading.Thread(target=attack, args=arguments)
    thread.start()
    while thread.is_alive():
        reactor.iterate(0.02)
    status = node.status()
    print(json.dumps({**told, "read": status.counts["received"], "items": status.items}))


if __name__ == "__main__":
    main(*sys.argv[1:])
