"""A client of a running node that waits for its answers, over its control socket or TCP port."""

from __future__ import annotations

from hyperbloom.client.feeds import FeedRequests
from hyperbloom.client.integrations import IntegrationRequests
from hyperbloom.client.node import NodeRequests
from hyperbloom.client.objects import ObjectRequests
from hyperbloom.client.requests import Arrival, NodeTimeout, NodeUnreachable, ObjectEvent
from hyperbloom.client.trust import TrustRequests
from hyperbloom.client.values import ValueRequests

__all__ = [
    "Arrival",
    "Client",
    "NodeTimeout",
    "NodeUnreachable",
    "ObjectEvent",
]


class Client(
    NodeRequests,
    FeedRequests,
    ValueRequests,
    TrustRequests,
    ObjectRequests,
    IntegrationRequests,
):
    """Asks the node whose control socket is at `path`; `over_tcp` makes one for its TCP port.

    timeout: seconds to wait for each answer, None for as long as it takes. run_command: what a
    person types to start the node, for the message when it does not run. In every method `feed` is
    a key in hex, an alias, or None for the node's default. Methods raise `Problem` when the node
    refuses, `NodeUnreachable` and `NodeTimeout`. A client belongs to one thread.
    """
