"""A request over https, for processes of the node's own: no part of it runs in the reactor."""

from __future__ import annotations

from hyperbloom.https.client import Answer, request
from hyperbloom.https.failures import RequestFailed

__all__ = ["Answer", "RequestFailed", "request"]
