"""Somebody who speaks HyperBloom by himself: what tests attack real nodes with.

Nothing here comes from the package that is attacked: sockets block, messages are put together byte
by byte, PyNaCl signs, and libsodium's XSalsa20 encrypts. So a mistake of ours cannot hide in both.

    key, feed = KeyPair.random(), FEED_KEY
    with Connection.dial(("127.0.0.1", 4365), source="127.7.0.1") as wire:
        wire.shake_hands(feed, key, chain=[owner.link(key.public)])
        wire.send_request(start=b"")
        message_id, body = wire.receive()

- `KeyPair` signs handshakes, data and trust links, in each dialect ("2", "1", "draft").
- `Connection.dial` connects from any address of 127.0.0.0/8; `Listener` is dialled by nodes.
  `send_open`, `receive_open`, `send_handshake` and `receive_handshake` go step by step,
  `shake_hands` all the way, on either side. `forward_handshake` passes on what another connection
  received, changed or not.
- `send` takes any message id and any body; `send_sync`, `send_request`, `send_data` make bodies;
  `send_frame` encrypts any bytes; `write` sends bytes as they are. `values_of` reads a Data.
- `receive` gives the next message; `drain` all until nothing comes for a while, or the end.
  A connection that the node has ended raises `Ended`; one that says nothing `TimeoutError`.

A connection may be written by one thread and read by another. It is for many threads and for many
processes: there is no state beside that of its objects.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from nacl.signing import SigningKey

MAGIC = bytes.fromhex("d572c875")
HASH_KEYS = {"2": b"---hyperbloom---", "1": b"---hyperbloom---", "draft": b"hyperbloom"}

HANDSHAKE, SYNC, FILTER_OPTIONS, DATA, REQUEST, LINK = range(6)

#: Linux's number, which Python names from 3.12 on.
BIND_ADDRESS_NO_PORT = 24

#: Seconds that a call waits for the node.
TIMEOUT = 30.0


class Ended(Exception):
    """The other side has closed or cut the connection."""


# Bytes


def varint(number: int) -> bytes:
    """A number from 0, 7 bits a byte, lowest first."""
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(tag: int, value: bytes | int) -> bytes:
    """One protobuf field: bytes with their length, or a number."""
    if isinstance(value, int):
        return varint(tag << 3) + varint(value)
    return varint(tag << 3 | 2) + varint(len(value)) + value


def fields_of(body: bytes) -> list[tuple[int, bytes | int]]:
    """The fields of a body in order: (tag, bytes or number)."""
    found: list[tuple[int, bytes | int]] = []
    at = 0
    while at < len(body):
        key, at = _read_varint(body, at)
        number, at = _read_varint(body, at)
        if key & 7 == 2:
            found.append((key >> 3, body[at : at + number]))
            at += number
        else:
            found.append((key >> 3, number))
    return found


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = body[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def values_of(body: bytes) -> list[bytes]:
    """The values in the body of a Data."""
    return [value for tag, value in fields_of(body) if tag == 1 and isinstance(value, bytes)]


def chain_of(handshake: bytes) -> list[bytes]:
    """The raw links in the body of a Handshake."""
    return [link for tag, link in fields_of(handshake) if tag == 4 and isinstance(link, bytes)]


def hashed(data: bytes, dialect: str = "2") -> bytes:
    """The protocol's hash: BLAKE2b-256 under the key of the dialect."""
    return hashlib.blake2b(data, digest_size=32, key=HASH_KEYS[dialect]).digest()


# Keys


class KeyPair:
    """An Ed25519 key pair that signs what the protocol has signed."""

    def __init__(self, seed: bytes) -> None:
        self.seed = seed
        self._key = SigningKey(seed)
        self.public = bytes(self._key.verify_key)

    @classmethod
    def random(cls) -> Self:
        """A new one."""
        return cls(os.urandom(32))

    def sign(self, data: bytes) -> bytes:
        """64 bytes over any bytes."""
        return self._key.sign(data).signature

    def link(self, trustee: bytes, *, expires: float | None = None, dialect: str = "2") -> bytes:
        """A trust link for a key, for an hour if nothing else is said."""
        when = time.time() + 3_600 if expires is None else expires
        middle = b"" if dialect == "draft" else struct.pack(">d", when)
        signed = b"\x01" + trustee + middle + os.urandom(32)
        return signed + self.sign(hashed(signed, dialect))

    def data_signature(self, feed: bytes, values: Sequence[bytes], dialect: str = "2") -> bytes:
        """Over a Data of these values."""
        return self.sign(hashed(feed + struct.pack(">Q", len(values)) + b"".join(values), dialect))


# Encryption


def _load_xor() -> ctypes._NamedFuncPointer:
    spec = importlib.util.find_spec("nacl._sodium")
    assert spec is not None
    assert spec.origin is not None
    function = ctypes.CDLL(spec.origin).crypto_stream_xsalsa20_xor_ic
    function.argtypes = [
        ctypes.c_char_p,
        ctypes.c_char_p,
        ctypes.c_ulonglong,
        ctypes.c_char_p,
        ctypes.c_uint64,
        ctypes.c_char_p,
    ]
    return function


_xor = _load_xor()


class KeyStream:
    """One direction's XSalsa20, from its first byte on."""

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._key, self._nonce, self.position = key, nonce, 0

    def apply(self, data: bytes) -> bytes:
        """Encrypt or decrypt the next bytes."""
        block, used = divmod(self.position, 64)
        padded = bytes(used) + data
        out = ctypes.create_string_buffer(len(padded))
        _xor(out, padded, len(padded), self._nonce, block, self._key)
        self.position += len(data)
        return out.raw[used:]


# Connections


@dataclass(frozen=True)
class Handshake:
    """What a Handshake says. `body` as it came."""

    body: bytes
    id: bytes
    signature: bytes
    chain: tuple[bytes, ...]
    extensions: tuple[bytes, ...] = ()

    @property
    def key(self) -> bytes | None:
        """The key that it proves; None: the feed's own (no link)."""
        return self.chain[-1][1:33] if self.chain else None

    @classmethod
    def parse(cls, body: bytes) -> Handshake:
        """From a body."""
        single = {tag: value for tag, value in fields_of(body) if tag not in (2, 4)}
        names = [bytes(name) for tag, name in fields_of(body) if tag == 2]
        chain = tuple(chain_of(body))
        return cls(body, bytes(single[1]), bytes(single[3]), chain, tuple(names))


class Connection:
    """A connection to a node. A context manager."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(TIMEOUT)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = sock
        self.feed = b""
        self.dialect = "2"
        self.key: KeyPair | None = None
        self.nonce = b""
        self.remote_nonce = b""
        self._out: KeyStream | None = None
        self._in: KeyStream | None = None
        self._buffer = b""

    @classmethod
    def dial(cls, address: tuple[str, int], *, source: str = "127.0.0.1") -> Connection:
        """Connect from any address of 127.0.0.0/8 (or ::1)."""
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        sock = socket.socket(family)
        try:
            sock.settimeout(TIMEOUT)
            if family == socket.AF_INET:
                # The port is chosen at the connect, so that many connections may leave an address.
                sock.setsockopt(
                    socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1
                )
                sock.bind((source, 0))
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return cls(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Go away."""
        self.socket.close()

    # Raw bytes

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        try:
            self.socket.sendall(data)
        except (ConnectionError, BrokenPipeError) as error:
            raise Ended(str(error)) from error

    def _more(self) -> None:
        try:
            data = self.socket.recv(1 << 18)
        except ConnectionError as error:
            raise Ended(str(error)) from error
        if not data:
            raise Ended("the node has closed the connection")
        self._buffer += data if self._in is None else self._in.apply(data)

    def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            self._more()
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def _read_length(self) -> int:
        digits = b""
        while not digits or digits[-1] >= 0x80:
            digits += self._read(1)
        return _read_varint(digits, 0)[0]

    # Open

    def use(self, feed: bytes, dialect: str = "2") -> None:
        """Be about this feed from now on."""
        self.feed, self.dialect = feed, dialect

    def send_open(self, nonce: bytes | None = None, *, discovery_key: bytes | None = None) -> None:
        """Ours; what is sent afterwards is encrypted. A nonce may be somebody else's."""
        self.nonce = os.urandom(24) if nonce is None else nonce
        asked = hashed(self.feed, self.dialect) if discovery_key is None else discovery_key
        body = field(1, asked) + field(2, self.nonce)
        self.write(MAGIC + varint(len(body)) + body)
        self._out = KeyStream(self.feed, self.nonce)

    def receive_open(self) -> tuple[bytes, bytes]:
        """The other side's discovery key and nonce; what follows is decrypted."""
        assert self._read(4) == MAGIC
        parts = dict(fields_of(self._read(self._read_length())))
        discovery_key, self.remote_nonce = bytes(parts[1]), bytes(parts[2])
        self._in = KeyStream(self.feed, self.remote_nonce)
        self._buffer = self._in.apply(self._buffer)
        return discovery_key, self.remote_nonce

    # Frames

    def send_frame(self, frame: bytes) -> None:
        """Encrypt and send any bytes where a frame should stand."""
        assert self._out is not None
        self.write(self._out.apply(frame))

    def send(self, message_id: int, body: bytes) -> None:
        """One message."""
        content = varint(message_id) + body
        self.send_frame(varint(len(content)) + content)

    def receive(self) -> tuple[int, bytes]:
        """The next message: its id and body."""
        frame = self._read(self._read_length())
        message_id, at = _read_varint(frame, 0)
        return message_id, frame[at:]

    def drain(self, seconds: float = 1.0) -> list[tuple[int, bytes]]:
        """All messages until none comes for so long, or the connection ends."""
        messages = []
        self.socket.settimeout(seconds)
        try:
            while True:
                messages.append(self.receive())
        except (TimeoutError, Ended):
            return messages
        finally:
            with contextlib.suppress(OSError):
                self.socket.settimeout(TIMEOUT)

    def wait_for_end(self) -> list[tuple[int, bytes]]:
        """All messages until the node ends the connection; `TimeoutError` if it does not."""
        messages = []
        with contextlib.suppress(Ended):
            while True:
                messages.append(self.receive())
        return messages

    # Handshakes

    def send_handshake(
        self,
        key: KeyPair,
        chain: Iterable[bytes] = (),
        *,
        peer_id: bytes | None = None,
        extensions: Iterable[bytes] = (),
    ) -> None:
        """Prove a key; both nonces have to be known (only the other's in the draft)."""
        self.key = key
        nonces = self.remote_nonce if self.dialect == "draft" else self.nonce + self.remote_nonce
        body = field(1, peer_id or os.urandom(32))
        body += b"".join(field(2, name) for name in extensions)
        body += field(3, key.sign(hashed(nonces, self.dialect)))
        body += b"".join(field(4, link) for link in chain)
        self.send(HANDSHAKE, body)

    def forward_handshake(self, seen: Handshake, *, peer_id: bytes | None = None) -> None:
        """Pass on what another connection received, with another id or with the same."""
        body = field(1, peer_id or seen.id) + field(3, seen.signature)
        self.send(HANDSHAKE, body + b"".join(field(4, link) for link in seen.chain))

    def receive_handshake(self) -> Handshake:
        """The other side's; it is not verified here."""
        message_id, body = self.receive()
        assert message_id == HANDSHAKE
        return Handshake.parse(body)

    def shake_hands(
        self,
        feed: bytes,
        key: KeyPair,
        chain: Iterable[bytes] = (),
        *,
        dialect: str = "2",
        extensions: Iterable[bytes] = (),
    ) -> Handshake:
        """Both Opens and both Handshakes, in either role; what the node said."""
        self.use(feed, dialect)
        self.send_open()
        self.receive_open()
        self.send_handshake(key, chain, extensions=extensions)
        return self.receive_handshake()

    # Messages

    def send_sync(
        self,
        bloom: bytes,
        *,
        size: int | None = None,
        n: int = 30,
        seed: int = 0,
        limit: int | None = None,
        between: tuple[bytes, bytes | None] | None = None,
    ) -> None:
        """Ask for what is not in a filter: all for `bytes(8)`, nothing for `b"\\xff" * 8`."""
        body = field(1, bloom) + field(2, size or 8 * len(bloom)) + field(3, n) + field(4, seed)
        if limit is not None:
            body += field(5, limit)
        if between is not None:
            start, end = between
            body += field(6, field(1, start) + (b"" if end is None else field(2, end)))
        self.send(SYNC, body)

    def send_request(
        self, start: bytes = b"", end: bytes | None = None, limit: int | None = None
    ) -> None:
        """Ask for the values in a range."""
        body = field(1, start)
        if end is not None:
            body += field(2, end)
        if limit is not None:
            body += field(3, limit)
        self.send(REQUEST, body)

    def send_data(self, values: Sequence[bytes], *, signature: bytes | None = None) -> None:
        """Values; signed by the key of our Handshake where the dialect signs."""
        if signature is None and self.dialect == "2" and self.key is not None:
            signature = self.key.data_signature(self.feed, values)
        body = b"".join(field(1, value) for value in values)
        self.send(DATA, body + (b"" if signature is None else field(2, signature)))


class Listener:
    """A port of an attacker that nodes dial. A context manager."""

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_server((host, 0))
        self.socket.settimeout(TIMEOUT)
        self.host, self.port = self.socket.getsockname()[:2]
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        """HOST:PORT for a configuration."""
        return f"{self.host}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def accept(self, timeout: float = TIMEOUT) -> Connection:
        """The next connection; `TimeoutError` if nobody dials."""
        with self._lock:
            self.socket.settimeout(timeout)
            return Connection(self.socket.accept()[0])
