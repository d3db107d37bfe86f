"""The npm reference as a peer: its installation, and one process of it driven from Python.

`NpmPeer` is one process of `driver.js`, or of another driver that speaks the same lines. Every wait
has a time limit, and what a failing wait saw is in its message; a process that ends by itself is a
`PeerDiedError` with what it said last.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import npm_packages
from npm_packages import CACHE

HERE = Path(__file__).resolve().parent

ANSWER_SECONDS = 180.0
STOP_SECONDS = 30.0

UnavailableError = npm_packages.UnavailableError


class PeerError(Exception):
    """The driver refused a command."""


class PeerTimeoutError(Exception):
    """What was waited for did not come in time."""


class PeerDiedError(Exception):
    """The process ended by itself."""


def install(cache: Path = CACHE, *, manifests: Path = HERE, extra: Sequence[str] = ()) -> Path:
    """The folder of the installed packages of the reference; see `npm_packages.install`."""
    return npm_packages.install(manifests, cache, extra=extra)


class NpmPeer:
    """One process of the reference. A context manager; `stop()` ends it by its process id."""

    def __init__(self, modules: Path, *, driver: Path = HERE / "driver.js") -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._process = subprocess.Popen(
            ["node", str(driver)],
            env={**os.environ, "NODE_PATH": str(modules)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._changed = threading.Condition()
        self._answers: dict[int, dict[str, Any]] = {}
        self._events: list[dict[str, Any]] = []
        self._taken: set[int] = set()
        self._ended = False
        self._stopping = False
        self._last_id = 0
        self._reader = threading.Thread(target=self._read, name="npm-peer", daemon=True)
        self._reader.start()
        try:
            self.wait("ready")
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End the process: by the end of its input, else by a kill of its own process id."""
        self._stopping = True
        if self._process.stdin is not None and not self._process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(STOP_SECONDS)
        self._stderr.close()

    # -- lines out and in

    def call(self, do: str, *, timeout: float = ANSWER_SECONDS, **arguments: Any) -> dict[str, Any]:
        """Run one command of the driver and return its answer. Raises PeerError if it refuses."""
        self._last_id += 1
        number = self._last_id
        line = json.dumps({"id": number, "do": do, **arguments}, allow_nan=False) + "\n"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode("ascii"))
            self._process.stdin.flush()
        except (BrokenPipeError, ValueError) as error:
            raise self._death(f"before `{do}`") from error
        with self._changed:
            came = self._changed.wait_for(lambda: number in self._answers or self._ended, timeout)
            answer = self._answers.pop(number, None)
        if answer is None:
            if came:
                raise self._death(f"in `{do}`")
            raise PeerTimeoutError(f"no answer to `{do}` in {timeout} s; {self._seen()}")
        if "error" in answer:
            raise PeerError(answer["error"])
        result: dict[str, Any] = answer["ok"]
        return result

    def wait(self, event: str, *, timeout: float = ANSWER_SECONDS, **fields: Any) -> dict[str, Any]:
        """The first event of that name and with those fields that no wait has returned yet."""
        with self._changed:
            found = self._changed.wait_for(
                lambda: self._take(event, fields) or self._ended, timeout
            )
            if isinstance(found, dict):
                return found
            last = self._take(event, fields)
        if last is not None:
            return last
        if found:
            raise self._death(f"before the event {event} {fields or ''}")
        raise PeerTimeoutError(f"no event {event} {fields or ''} in {timeout} s; {self._seen()}")

    def events(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """All events of that name and with those fields so far, waited for or not."""
        with self._changed:
            return [seen for seen in self._events if _matches(seen, event, fields)]

    def _take(self, event: str, fields: dict[str, Any]) -> dict[str, Any] | None:
        for index, seen in enumerate(self._events):
            if index not in self._taken and _matches(seen, event, fields):
                self._taken.add(index)
                return seen
        return None

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                said = json.loads(line)
                with self._changed:
                    if "event" in said:
                        self._events.append(said)
                    else:
                        self._answers[said["id"]] = said
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _seen(self) -> str:
        shown = [json.dumps(event)[:300] for event in self._events[-20:]]
        return "its last events:\n  " + "\n  ".join(shown)

    def _death(self, when: str) -> PeerDiedError:
        if self._stopping:
            return PeerDiedError(f"the npm peer was stopped {when}")
        status = self._process.wait(STOP_SECONDS)
        uncaught = [event["message"] for event in self._events if event["event"] == "uncaught"]
        self._stderr.seek(0)
        said = "\n".join([*uncaught, self._stderr.read().decode(errors="replace")]).strip()
        return PeerDiedError(
            f"the npm peer ended with status {status} {when}: {said or self._seen()}"
        )

    # -- commands

    def node(
        self,
        *,
        seed: bytes,
        feed_key: bytes,
        chain: Iterable[bytes] = (),
        full: bool = True,
        verbose: bool = False,
        dialect: str = "2",
        twists: dict[str, Any] | None = None,
    ) -> bytes:
        """Be a hyperbloom-node Node; returns its public key. See driver.js for the twists."""
        options = {"full": full, "verbose": verbose, "dialect": dialect, "twists": twists or {}}
        return self._configure("node", seed, feed_key, chain, **options)

    def raw(
        self,
        *,
        seed: bytes,
        feed_key: bytes,
        chain: Iterable[bytes] = (),
        dialect: str = "2",
        twists: dict[str, Any] | None = None,
    ) -> bytes:
        """Be a bare hyperbloom-protocol Stream a connection; returns the public key."""
        options = {"dialect": dialect, "twists": twists or {}}
        return self._configure("raw", seed, feed_key, chain, **options)

    def _configure(
        self, mode: str, seed: bytes, feed_key: bytes, chain: Iterable[bytes], **rest: Any
    ) -> bytes:
        hex_chain = [link.hex() for link in chain]
        answer = self.call(mode, seed=seed.hex(), feedKey=feed_key.hex(), chain=hex_chain, **rest)
        return bytes.fromhex(answer["publicKey"])

    def listen(self) -> int:
        """Listen on a free port of 127.0.0.1 and return it."""
        port: int = self.call("listen")["port"]
        return port

    def connect(self, port: int) -> int:
        """Connect to 127.0.0.1 and return the connection's number."""
        connection: int = self.call("connect", port=port)["connection"]
        return connection

    def connect_securely(self, port: int) -> int:
        """Connect, and wait until the handshakes are done."""
        connection = self.connect(port)
        self.wait("secure", connection=connection)
        return connection

    def insert(self, value: bytes) -> bool:
        inserted: bool = self.call("insert", value=value.hex())["inserted"]
        return inserted

    def bulk_insert(self, values: Iterable[bytes]) -> int:
        """Insert values; how many were new."""
        inserted: int = self.call("bulkInsert", values=[v.hex() for v in values])["inserted"]
        return inserted

    def values(
        self, start: bytes = b"", end: bytes | None = None, limit: int | None = None
    ) -> list[bytes]:
        """What the Node itself holds of a range, in order."""
        arguments = _range(start, end, limit)
        return [bytes.fromhex(value) for value in self.call("request", **arguments)["values"]]

    def has(self, values: Iterable[bytes]) -> list[bool]:
        held: list[bool] = self.call("has", values=[value.hex() for value in values])["has"]
        return held

    def count(self) -> int:
        count: int = self.call("count")["count"]
        return count

    def until(
        self, *, count: int = 0, has: Iterable[bytes] = (), timeout: float = ANSWER_SECONDS
    ) -> int:
        """Wait until the Node holds that many values and all of `has`; its count then."""
        hex_values = [value.hex() for value in has]
        answer = self.call("until", count=count, has=hex_values, timeout=timeout)
        reached: int = answer["count"]
        return reached

    def chain(self) -> tuple[bytes, ...]:
        """The chain the Node uses for its next connections."""
        return tuple(bytes.fromhex(link) for link in self.call("chain")["chain"])

    def watch(self, start: bytes, end: bytes | None = None) -> int:
        """Watch a range; the events are named `values` and carry this number as `watch`."""
        number: int = self.call("watch", **_range(start, end, None))["watch"]
        return number

    def issue_link(self, *, seed: bytes, trustee: bytes, expires: float) -> bytes:
        """A Trust Link made by hyperbloom-chain."""
        answer = self.call("issueLink", seed=seed.hex(), trustee=trustee.hex(), expires=expires)
        return bytes.fromhex(answer["link"])

    def send_data(self, connection: int, values: Iterable[bytes], **signature: str) -> None:
        """Send Data, signed by the reference unless `signature` (hex) says otherwise."""
        self._send(connection, "data", values=[value.hex() for value in values], **signature)

    def send_request(
        self, connection: int, start: bytes, end: bytes | None = None, limit: int | None = None
    ) -> None:
        self._send(connection, "request", **_range(start, end, limit))

    def send_sync(
        self,
        connection: int,
        *,
        filter: bytes,  # noqa: A002 (the name in the protocol)
        size: int,
        n: int,
        seed: int = 0,
        limit: int | None = None,
        range: tuple[bytes, bytes | None] | None = None,  # noqa: A002 (the name in the protocol)
    ) -> None:
        """Send Sync; `limit` and `range` are left out of the message when None."""
        body: dict[str, Any] = {"filter": filter.hex(), "size": size, "n": n, "seed": seed}
        if limit is not None:
            body["limit"] = limit
        if range is not None:
            body["range"] = _range(*range, None)
        self._send(connection, "sync", **body)

    def send_link(self, connection: int, link: bytes) -> None:
        self._send(connection, "link", link=link.hex())

    def send_frame(self, connection: int, message_id: int, body: bytes) -> None:
        """Send any message id with any body."""
        self._send(connection, "frame", id=message_id, body=body.hex())

    def _send(self, connection: int, kind: str, **body: Any) -> None:
        self.call("send", connection=connection, type=kind, body=body)

    def close(self, connection: int) -> None:
        """End a connection as a program does: half-closed, and gone after a second."""
        self.call("close", connection=connection)

    def destroy(self, connection: int) -> None:
        """End a connection as a crash does."""
        self.call("destroy", connection=connection)


def _matches(seen: dict[str, Any], event: str, fields: dict[str, Any]) -> bool:
    return seen["event"] == event and all(seen.get(name) == fields[name] for name in fields)


def _range(start: bytes, end: bytes | None, limit: int | None) -> dict[str, Any]:
    body: dict[str, Any] = {"start": start.hex()}
    if end is not None:
        body["end"] = end.hex()
    if limit is not None:
        body["limit"] = limit
    return body
