"""A program's way to a running node: over its control socket or its TCP port.

`Client` waits for its answers and loads nothing of the node. For programs on Twisted there is
`twisted_client`, for persisted classes `remote_pool`: import these from their modules.
"""

from hyperbloom.api.problems import Problem
from hyperbloom.client.client import Client
from hyperbloom.client.requests import NodeTimeout, NodeUnreachable

__all__ = ["Client", "NodeTimeout", "NodeUnreachable", "Problem"]
