"""The JVM implementation of PPPP 2, played: both roles, and every oddity that was recorded of it.

`tests/vectors/pppp-jvm.json` is what the real one said; `test_jvm_scenarios.py` has this one say
the same. `JvmPeer` holds pool, classes and connections; `JvmConnection` is one connection without
I/O, `JvmLink` runs one in memory, `JvmSocket` over blocking sockets in threads, reading as Java
does: one read for a whole header, one for a whole payload.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from dataclasses import dataclass, field

from jvm_formats import (
    Float,
    Secret,
    Unreadable,
    Unwritable,
    hash_code,
    long_code,
    narrowed,
    object_hash,
    pack,
    padded,
    polynomial,
    read_lz4,
    unpack,
    write_lz4,
)
from twisted.internet.protocol import Protocol

IDENTIFY, OK, REJECTION, PING, PONG, KICK, INITIALIZE, CREATION, CHANGE, REMOVAL = range(10)
HEADER_BYTES = 4
_ZEROS = {"int": 0, "long": 0, "byte": 0, "short": 0, "boolean": False, "double": 0.0}
_UNWRITABLE = ("char", "String[]", "byte[]", "Person")


@dataclass(frozen=True)
class JvmClass:
    """A class: fields in declared order with their types, and what its hashCode computes."""

    name: str
    fields: tuple[tuple[str, str], ...]
    code: str

    @classmethod
    def of(cls, form: dict) -> JvmClass:
        return cls(form["name"], tuple(map(tuple, form["fields"])), form["hashCode"])

    @property
    def properties(self) -> dict[str, str]:
        return {name: kind for name, kind in self.fields if "(" not in kind}

    def begin(self) -> dict:
        return {name: _zero(kind) for name, kind in self.properties.items()}

    def hash_code(self, values: dict) -> int:
        kinds = self.properties
        found = re.fullmatch(r"Objects\.hash\((.*)\)", self.code)
        if found is None:
            return _code(kinds[self.code], values[self.code])
        # Arrays and what is not a property: Hidden begins with false and 0.
        names = re.findall(r"\w+", re.sub(r"Arrays\.\w+|\.ordinal\(\)", "", found[1]))
        unseen = {"shut": False, "serial": 0}
        return polynomial(
            _code(kinds[name], values[name]) if name in kinds else hash_code(unseen[name])
            for name in names
        )

    def hash(self, values: dict) -> int:
        return object_hash(self.name, len(self.properties), self.hash_code(values))

    def assign(self, values: dict, name: str, value) -> None:
        kind = self.properties.get(name)
        if kind is None:
            raise Unreadable(f"{self.name} has no field {name}")
        values[name] = _assigned(kind, value)


def _zero(kind: str):
    return Float(0.0) if kind == "float" else _ZEROS.get(kind)


def _code(kind: str, value) -> int:
    if kind == "Person":
        return polynomial((hash_code(value["name"]), value["age"]))
    return long_code(value) if kind in ("long", "Long") and value is not None else hash_code(value)


def _assigned(kind: str, value):
    """What Java's reflection makes of a value for a field of this type."""
    is_int = type(value) is int
    if kind in ("int", "long") and is_int:
        return value
    if kind == "boolean" and type(value) is bool:
        return value
    if kind == "float" and (is_int or isinstance(value, Float)):
        return narrowed(value)
    if kind == "double" and (is_int or isinstance(value, Float)):
        return float(value)
    if (value is None and kind[0].isupper()) or (value is None and kind == "byte[]"):
        return None
    if kind == "String" and type(value) is str:
        return value
    if kind.startswith("List") and type(value) is list:
        return value
    if kind.startswith("Map") and type(value) is dict:
        return value
    raise Unreadable(f"{value!r} is no {kind}")


@dataclass
class JvmObject:
    cls: JvmClass
    values: dict

    @property
    def hash(self) -> int:
        return self.cls.hash(self.values)

    def part(self, name: str) -> dict:
        if self.cls.properties[name] in _UNWRITABLE:
            raise Unwritable(name)
        return {name: self.values[name]}

    def written(self) -> dict:
        for name, kind in self.cls.properties.items():
            if kind in _UNWRITABLE:
                raise Unwritable(name)
        return dict(self.values)


@dataclass
class JvmPeer:
    """One JVM: its program's classes, its pool, its connections."""

    known: tuple[JvmClass, ...]
    passphrase: str | None = None
    version: int = 7
    judge: object = None
    salt: object = field(default_factory=lambda: lambda: os.urandom(32))

    def __post_init__(self) -> None:
        self.classes = list(self.known)
        self.objects: dict[int, JvmObject] = {}
        self.connections: list[JvmConnection] = []
        self.secret = None if self.passphrase is None else Secret(self.passphrase)
        #: What AES knows of connections, by the other side's port.
        self.filed: dict[int, dict] = {}
        self.lock = threading.RLock()
        self.kicks_said = self.kicks_heard = 0
        self.ends: list[str] = []

    # Its program

    def ask_stores(self) -> None:
        self.classes = list(self.known)

    def add(self, name: str, /, **values) -> int:
        cls = next(cls for cls in self.known if cls.name == name)
        with self.lock:
            made = JvmObject(cls, {**cls.begin(), **values})
            self.objects[made.hash] = made
            for connection in list(self.connections):
                connection.say(op=CREATION, h=made.hash, d=made.written)
            return made.hash

    def set(self, number: int, name: str, value) -> int:
        with self.lock:
            changed = self.objects.pop(number)
            changed.values[name] = value
            self.objects[changed.hash] = changed
            for connection in list(self.connections):
                connection.say(op=CHANGE, h=changed.hash, oh=number, d=lambda: changed.part(name))
            return changed.hash

    def remove(self, number: int) -> None:
        with self.lock:
            del self.objects[number]
            for connection in list(self.connections):
                connection.say(op=REMOVAL, h=number)

    def pool(self) -> dict[int, dict]:
        with self.lock:
            return {number: dict(found.values) for number, found in self.objects.items()}

    # Objects from others

    def fit(self, fields: dict) -> JvmObject:
        """An object of the class that has most of the fields; Unreadable without one."""
        best = max(
            self.classes, key=lambda cls: len(cls.properties.keys() & fields.keys()), default=None
        )
        if best is None or not best.properties.keys() & fields.keys():
            raise Unreadable(f"no class for {list(fields)}")
        values = best.begin()
        for name, value in fields.items():
            if name in best.properties:
                best.assign(values, name, value)
        return JvmObject(best, values)

    def fit_names(self, fields: dict) -> JvmClass:
        """The class that has these fields."""
        return max(self.known, key=lambda cls: len(cls.properties.keys() & fields.keys()))

    def forward(self, source: JvmConnection, **message) -> None:
        for connection in list(self.connections):
            if connection is not source:
                connection.say(**message)

    def wipe(self) -> None:
        self.objects.clear()
        self.classes.clear()


class JvmConnection:
    """One connection. `write` takes bytes, `shut` ends it; `dialled`: by this JVM."""

    def __init__(self, peer: JvmPeer, write, shut, *, dialled: bool, port: int) -> None:
        self.peer, self._write, self._shut = peer, write, shut
        self.dialled = dialled
        self.over = False
        self.got: list[dict] = []
        self._stage, self._wanted = "flag", 1
        self.aes = None
        if peer.secret is not None:
            fresh = {"salt": None, "agreed": False, "client": False}
            self.aes = peer.filed.setdefault(port, fresh)
        peer.connections.append(self)
        if dialled:
            self.say(op=IDENTIFY, v=peer.version, d={"who": "jvm"})

    # Out

    def say(self, **message) -> None:
        if self.over:
            return
        order = ("v", "t", "op", "h", "oh", "d")
        message.setdefault("t", int(time.time() * 1000))
        try:
            if callable(message.get("d")):
                message["d"] = message["d"]()
            plain = padded({key: message[key] for key in order if key in message})
        except Unwritable:
            self.end("unwritable")
            return
        data = self._outgoing(write_lz4(plain), is_ok=message["op"] == OK)
        flag = 0 if self.aes is None else 1
        parts = [bytes([flag]), len(data).to_bytes(4, "big"), data]
        self._write(parts)

    def _outgoing(self, data: bytes, *, is_ok: bool) -> bytes:
        aes = self.aes
        if aes is None:
            return data
        if aes["agreed"]:
            return self.peer.secret.encrypt(aes["salt"] + data)
        if is_ok and not aes["client"]:
            aes.update(salt=self.peer.salt(), agreed=True)
            return aes["salt"] + data
        if is_ok or not aes["client"]:
            aes["client"] = aes["client"] or not is_ok
        return data

    def end(self, why: str, *, kick: bool = False) -> None:
        if self.over:
            return
        if kick:
            self.peer.kicks_said += 1
            self.say(op=KICK)
        self.over = True
        self.peer.ends.append(why)
        if self in self.peer.connections:
            self.peer.connections.remove(self)
        self._shut()

    # In

    def wanted(self) -> int:
        """How many bytes the next read of the socket asks for."""
        return self._wanted

    def took(self, data: bytes) -> None:
        """What one read of the socket gave; nothing at the end of the stream."""
        with self.peer.lock:
            if self.over:
                return
            try:
                self._took(data)
            except Unreadable as why:
                self.end(f"unreadable: {why}", kick=True)

    def _took(self, data: bytes) -> None:
        if self._stage == "flag":
            flag = 0 if self.aes is None else 1
            if not data or data[0] != flag:
                raise Unreadable("another flag, or the end")
            self._stage, self._wanted = "length", HEADER_BYTES
            return
        if self._stage == "length":
            if len(data) < HEADER_BYTES or not any(data):
                raise Unreadable("a header in pieces, or a length of 0")
            self._stage, self._wanted = "payload", int.from_bytes(data, "big")
            return
        if len(data) < self._wanted:
            raise Unreadable("a payload in pieces")
        self._stage, self._wanted = "flag", 1
        self._take(self.read(data))

    def read(self, data: bytes) -> dict:
        """The message in a payload."""
        aes = self.aes
        if aes is not None:
            if aes["agreed"]:
                data = self.peer.secret.decrypt(data)[32:]
            elif aes["client"]:
                aes.update(salt=data[:32], agreed=True)
                data = data[32:]
        message = unpack(read_lz4(data))
        self.got.append(message)
        return message

    def _take(self, message: dict) -> None:
        peer, op = self.peer, message.get("op")
        match op:
            case 0:
                allowed = peer.judge is None or peer.judge(message.get("v"))
                self.say(**({"op": OK, "v": peer.version} if allowed else {"op": REJECTION}))
            case 1:
                if peer.judge is not None and not peer.judge(message.get("v")):
                    self.say(op=REJECTION)
                else:
                    self._initialize(respond=True)
            case 2:
                self.end("rejected")
            case 3:
                self.say(op=PONG)
            case 4:
                pass
            case 5:
                peer.kicks_heard += 1
                peer.wipe()
                self.end("kicked")
            case 6:
                self._take_initialize(message)
            case 7:
                self._take_creation(message)
            case 8:
                self._take_change(message)
            case 9:
                if message.get("h") in peer.objects:
                    del peer.objects[message["h"]]
                    peer.forward(self, **message)
            case _:
                raise Unreadable(f"op {op}")

    def _initialize(self, *, respond: bool) -> None:
        found = list(self.peer.objects.values())
        self.say(op=INITIALIZE, d=lambda: {"r": respond, "p": [one.written() for one in found]})

    def _take_initialize(self, message: dict) -> None:
        peer, d = self.peer, message.get("d", {})
        if type(d.get("r")) is not bool or not d.get("p"):
            raise Unreadable("INITIALIZE")
        made = [peer.fit(fields) for fields in d["p"]]
        if made[0].hash in peer.objects:
            return
        if d["r"]:
            self._initialize(respond=False)
        for one in made:
            peer.objects.setdefault(one.hash, one)
        empty = {"r": d["r"], "p": [{} for _ in made]}
        peer.forward(self, op=INITIALIZE, t=message.get("t", 0), d=empty)

    def _take_creation(self, message: dict) -> None:
        if "h" not in message:
            raise Unreadable("CREATION without h")
        if message["h"] in self.peer.objects:
            return
        made = self.peer.fit(message.get("d", {}))
        self.peer.objects[made.hash] = made
        self.peer.forward(self, **message)

    def _take_change(self, message: dict) -> None:
        if "oh" not in message or not message.get("d"):
            raise Unreadable("CHANGE")
        changed = self.peer.objects.get(message["oh"])
        if changed is None:
            return
        values = dict(changed.values)
        changed.cls.assign(values, *next(iter(message["d"].items())))
        del self.peer.objects[message["oh"]]
        changed.values = values
        self.peer.objects[changed.hash] = changed
        self.peer.forward(self, **message)


def mixed(messages, chance, *, most):
    """The parts of messages that `most` threads write at one time, in an order by chance."""
    waiting, threads = [list(parts) for parts in messages], []
    while waiting or threads:
        while waiting and len(threads) < most:
            threads.append(waiting.pop(0))
        writer = chance.choice(threads)
        yield writer.pop(0)
        if not writer:
            threads.remove(writer)


class JvmLink(Protocol):
    """A connection of a JVM over a transport in memory: what one write carries arrives at once."""

    def __init__(self, peer: JvmPeer, *, dialled: bool, port: int = 1) -> None:
        self._make = lambda: JvmConnection(
            peer, self._write, self._shut, dialled=dialled, port=port
        )
        self.talk: JvmConnection | None = None
        self.held: list[list[bytes]] | None = None

    def connectionMade(self):
        self.talk = self._make()

    def _write(self, parts):
        if self.held is None:
            self.transport.write(b"".join(parts))
        else:
            self.held.append(parts)

    def hold(self):
        """Keep what is said, for `release`."""
        self.held = []

    def release(self, chance, *, most):
        """Write what was held as that many threads do: flag, length, bytes, in any order."""
        held, self.held = self.held, None
        for part in mixed(held, chance, most=most):
            self.transport.write(part)

    def _shut(self):
        self.transport.loseConnection()

    def dataReceived(self, data):
        while data and not self.talk.over:
            wanted = self.talk.wanted()
            self.talk.took(data[:wanted])
            data = data[wanted:]

    def connectionLost(self, reason=None):
        self.talk.end("lost")


class JvmSocket:
    """A JVM over real sockets: it listens, or dials; each connection has a thread that reads."""

    def __init__(self, peer: JvmPeer, *, read_seconds: float = 0.0) -> None:
        self.peer = peer
        self.read_seconds = read_seconds
        self._sockets: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self.accepted = 0

    def listen(self, port: int = 0) -> int:
        self._listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, daemon=True).start()
        return self._listener.getsockname()[1]

    def _accept(self) -> None:
        while True:
            try:
                one, address = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            self._run(one, dialled=False, port=address[1])

    def dial(self, port: int) -> JvmConnection:
        one = socket.create_connection(("127.0.0.1", port), timeout=20)
        one.settimeout(None)
        return self._run(one, dialled=True, port=port)

    def _run(self, one: socket.socket, *, dialled: bool, port: int) -> JvmConnection:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(one)

        def write(parts: list[bytes]) -> None:
            for part in parts:
                try:
                    one.sendall(part)
                except OSError:
                    return

        def shut() -> None:
            for stop in (lambda: one.shutdown(socket.SHUT_RDWR), one.close):
                with contextlib.suppress(OSError):
                    stop()

        with self.peer.lock:
            connection = JvmConnection(self.peer, write, shut, dialled=dialled, port=port)
        threading.Thread(target=self._read, args=(one, connection), daemon=True).start()
        return connection

    def _read(self, one: socket.socket, connection: JvmConnection) -> None:
        while not connection.over:
            try:
                data = one.recv(connection.wanted())
            except OSError:
                data = b""
            connection.took(data)
            if not data:
                connection.end("lost")
                return

    def kill(self) -> None:
        """As kill -9 does: every socket goes at once, nothing is said, nothing is kept."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        with self.peer.lock:
            for connection in list(self.peer.connections):
                connection.over = True
            self.peer.connections.clear()
        for one in self._sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


__all__ = ["JvmClass", "JvmConnection", "JvmLink", "JvmPeer", "JvmSocket", "mixed", "pack"]
