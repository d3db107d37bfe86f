"""HyperBloom as bytes: framing, stream cipher, messages, dialects and the session machine.

Nothing here does I/O, reads a clock or makes random numbers: time and nonces are arguments.
"""

from hyperbloom.wire.credentials import (
    Credentials,
    sign_data,
)
from hyperbloom.wire.dialect import (
    DIALECT_1,
    DIALECT_2,
    DIALECTS,
    Dialect,
)
from hyperbloom.wire.errors import (
    FrameTooLong,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    UntrustedPeer,
)
from hyperbloom.wire.events import (
    NEED_DATA,
    PAUSED,
    ConnectionEnded,
    DataReceived,
    DataRefused,
    Event,
    FilterOptionsReceived,
    HandshakeReceived,
    LinkIgnored,
    LinkReceived,
    OpenReceived,
    RemotePeer,
    RequestReceived,
    SyncReceived,
    UnknownIgnored,
    Waiting,
)
from hyperbloom.wire.framing import MAGIC
from hyperbloom.wire.limits import (
    MAX_BUFFERED_BYTES,
    MAX_EARLY_BYTES,
    MAX_EXTENSION_BYTES,
    MAX_EXTENSIONS,
    MAX_FRAME_BYTES,
    MAX_LENGTH_BYTES,
    MAX_MESSAGE_ID_BYTES,
    MAX_OPEN_BYTES,
    SEND_FRAME_BYTES,
)
from hyperbloom.wire.messages import (
    MAX_FILTER_PADDING,
    PEER_ID_BYTES,
    Data,
    FilterOptions,
    Handshake,
    Link,
    Open,
    Range,
    Request,
    Sync,
)
from hyperbloom.wire.packing import (
    MAX_VALUE_BYTES,
    max_value_bytes,
    pack_values,
)
from hyperbloom.wire.session import Session
from hyperbloom.wire.states import (
    PAUSED_STATES,
    TRANSITIONS,
    Input,
    State,
    diagram,
)
from hyperbloom.wire.stream_cipher import (
    CIPHER_KEY_BYTES,
    CIPHER_NONCE_BYTES,
    XSalsa20Stream,
)

__all__ = [
    "CIPHER_KEY_BYTES",
    "CIPHER_NONCE_BYTES",
    "DIALECTS",
    "DIALECT_1",
    "DIALECT_2",
    "MAGIC",
    "MAX_BUFFERED_BYTES",
    "MAX_EARLY_BYTES",
    "MAX_EXTENSIONS",
    "MAX_EXTENSION_BYTES",
    "MAX_FILTER_PADDING",
    "MAX_FRAME_BYTES",
    "MAX_LENGTH_BYTES",
    "MAX_MESSAGE_ID_BYTES",
    "MAX_OPEN_BYTES",
    "MAX_VALUE_BYTES",
    "NEED_DATA",
    "PAUSED",
    "PAUSED_STATES",
    "PEER_ID_BYTES",
    "SEND_FRAME_BYTES",
    "TRANSITIONS",
    "ConnectionEnded",
    "Credentials",
    "Data",
    "DataReceived",
    "DataRefused",
    "Dialect",
    "Event",
    "FilterOptions",
    "FilterOptionsReceived",
    "FrameTooLong",
    "Handshake",
    "HandshakeReceived",
    "Input",
    "Link",
    "LinkIgnored",
    "LinkReceived",
    "LocalProtocolError",
    "Open",
    "OpenReceived",
    "ProtocolError",
    "Range",
    "RemotePeer",
    "RemoteProtocolError",
    "Request",
    "RequestReceived",
    "Session",
    "State",
    "Sync",
    "SyncReceived",
    "UnknownIgnored",
    "UntrustedPeer",
    "Waiting",
    "XSalsa20Stream",
    "diagram",
    "max_value_bytes",
    "pack_values",
    "sign_data",
]
