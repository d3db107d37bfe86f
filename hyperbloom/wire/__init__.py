"""HyperBloom as bytes: framing, stream cipher, messages, dialects and the session machine.

Nothing here does I/O, reads a clock or makes random numbers: time and nonces are arguments. A
Session, what it needs, and the messages it takes are here; its events are in events.py.
"""

from hyperbloom.wire.credentials import Credentials
from hyperbloom.wire.dialect import DIALECTS, Dialect
from hyperbloom.wire.errors import (
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    UntrustedPeer,
)
from hyperbloom.wire.events import NEED_DATA, PAUSED
from hyperbloom.wire.extensions.reconcile import Sketch, SketchRequest, ValuesWanted
from hyperbloom.wire.extensions.set_digest import Digest, DigestRequest
from hyperbloom.wire.messages import (
    Data,
    FilterOptions,
    Handshake,
    Link,
    Open,
    Range,
    Request,
    Sync,
)
from hyperbloom.wire.session import Session

__all__ = [
    "DIALECTS",
    "NEED_DATA",
    "PAUSED",
    "Credentials",
    "Data",
    "Dialect",
    "Digest",
    "DigestRequest",
    "FilterOptions",
    "Handshake",
    "Link",
    "LocalProtocolError",
    "Open",
    "ProtocolError",
    "Range",
    "RemoteProtocolError",
    "Request",
    "Session",
    "Sketch",
    "SketchRequest",
    "Sync",
    "UntrustedPeer",
    "ValuesWanted",
]
