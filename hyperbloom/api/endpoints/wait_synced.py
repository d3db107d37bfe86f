"""The endpoint that waits until peers are in sync."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from hyperbloom.api.http.request import Call, told
from hyperbloom.api.limits import MAX_SYNCED_PEERS, MAX_SYNCED_SECONDS
from hyperbloom.api.schemas import bad_request, digest_hex, flat_json, only

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from hyperbloom.replication.sync.wait_synced import InSync

__all__ = ["wait_synced"]


async def wait_synced(call: Call) -> Mapping[str, Any]:
    """`{"peers": [name, …], "timeout"?}`: answers once each peer was seen to hold the same.

    A name is a key, the beginning of one, or an address. `at` is when, `source` whether by
    `digest` or by `sync` alone. Count and digest are this node's at the end.
    """
    feed, body = call.feed(), call.body()
    only(body, ("peers", "timeout"))
    names = body.get("peers")
    if type(names) is not list or not names or any(type(name) is not str for name in names):
        raise bad_request("peers must be a list of texts, with at least one in it")
    if len(names) > MAX_SYNCED_PEERS:
        raise bad_request(f"peers may hold {MAX_SYNCED_PEERS} names")
    timeout = call.seconds(body.get("timeout", 30.0), "timeout", MAX_SYNCED_SECONDS)

    def wait() -> Deferred[list[InSync]]:
        waiting = call.node.wait_synced(feed.key, names, timeout=timeout)
        # Who asked may go before it is answered: nobody waits then.
        call.request.notifyFinish().addErrback(lambda _: waiting.cancel())
        return waiting

    found = await told(wait)
    record = feed.record()
    return {
        "feed": feed.key.hex(),
        "count": record.count,
        "digest": digest_hex(record),
        "digest_left": record.digest_left,
        "peers": [flat_json(one) for one in found],
    }
