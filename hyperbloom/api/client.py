"""A synchronous client of a running node, over its control socket or its TCP port.

Standard library only, so that a command starts fast; one connection, kept open between requests. A
client belongs to one thread.
"""

from __future__ import annotations

import http.client
import json
import math
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote, urlencode

from hyperbloom.addresses import parse_host_port
from hyperbloom.api.limits import SILENT_SECONDS
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.unix import connect_unix
from hyperbloom.passphrase import load_passphrase

if TYPE_CHECKING:
    from types import TracebackType

    from hyperbloom.api.forms import (
        FeedForm,
        InvitationForm,
        LinkForm,
        MemberForm,
        PutForm,
        RangeForm,
        SessionOfferForm,
    )
    from hyperbloom.api.objects import ObjectForm

__all__ = [
    "Arrival",
    "Client",
    "NodeTimeout",
    "NodeUnreachable",
    "ObjectEvent",
    "arrival_of",
    "feed_path",
    "problem_of",
]

_KINDS = {kind.type: kind for kind in ProblemKind}
#: Read at once from a watch.
_STREAM_BYTES = 65_536


class NodeUnreachable(Exception):
    """No node answers on the socket; the message is one sentence that says what to do."""


class NodeTimeout(Exception):
    """The node did not answer in the time it was given."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A value as it arrived: its arrival number, the peer that brought it, when (seconds)."""

    seq: int
    value: bytes
    origin: bytes
    received_at: float


@dataclass(frozen=True, slots=True)
class ObjectEvent:
    """What happened: `created`, `changed` or `removed`; the object before and after it."""

    kind: str
    before: ObjectForm | None
    after: ObjectForm | None


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path
        self.headers: dict[str, str] = {}

    def connect(self) -> None:
        self.sock = connect_unix(self._path, self.timeout)


class _TcpConnection(http.client.HTTPConnection):
    def __init__(self, host: str, port: int, timeout: float | None, token: str) -> None:
        super().__init__(host, port, timeout=timeout)
        self.headers = {"Authorization": f"Bearer {token}"}


def arrival_of(event: Mapping[str, Any]) -> Arrival:
    """The arrival that an event of a watch tells of."""
    return Arrival(
        event["seq"],
        bytes.fromhex(event["value"]),
        bytes.fromhex(event["origin"]),
        event["received_at"],
    )


def feed_path(feed: str | None, end: str = "") -> str:
    """The path of what belongs to a feed; None is the node's default."""
    return f"/v1/feeds/{'-' if feed is None else quote(feed, safe='')}{end}"


def _object_path(number: str) -> str:
    return f"/v1/objects/{quote(number, safe='')}"


def problem_of(form: Mapping[str, Any]) -> Problem:
    """The problem that an answer tells of."""
    kind = _KINDS.get(form.get("type", ""), ProblemKind.UNEXPECTED)
    return Problem(kind, str(form.get("detail", kind.title)))


def _expiry(moment: float) -> float | None:
    """A moment as JSON can hold it: infinity, never, is null."""
    return moment if math.isfinite(moment) else None


def _hex_list(values: Sequence[bytes]) -> list[str]:
    return [value.hex() for value in values]


class Client:
    """Asks the node whose control socket is at `path`.

    timeout: seconds to wait for each answer, None for as long as it takes. run_command: what a
    person types to start the node, for the message when it does not run. In every method `feed` is
    a key in hex, an alias, or None for the node's default. Methods raise `Problem` when the node
    refuses, `NodeUnreachable` and `NodeTimeout`.
    """

    def __init__(
        self, path: Path, *, timeout: float | None = None, run_command: str = "hyperbloom run"
    ) -> None:
        self._path = path
        self._timeout = timeout
        self._run_command = run_command
        self._connection: _Connection | _TcpConnection = _Connection(path, timeout)

    @classmethod
    def over_tcp(cls, address: str, token: Path, *, timeout: float | None = None) -> Client:
        """A client of the node whose `[api] listen` is `address` and whose token file is `token`.

        Raises `ValueError` for an address that is not HOST:PORT, `PassphraseError` for a token
        that cannot be read.
        """
        host, port = parse_host_port(address)
        client = cls(Path(address), timeout=timeout)
        text = load_passphrase(token, what="token")
        client._connection = _TcpConnection(host, port, timeout, text)
        return client

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; another request opens a new one."""
        self._connection.close()

    # The node

    def ping(self) -> Mapping[str, Any]:
        """pid, version and identity of the node."""
        return self._ask("GET", "/v1/ping")

    def status(self) -> Mapping[str, Any]:
        """The node's status, see `hyperbloom.replication.status.NodeStatus`."""
        return self._ask("GET", "/v1/status")

    def peers(self) -> list[dict[str, Any]]:
        """Every peer, see `hyperbloom.replication.status.PeerStatus`."""
        return cast("list[dict[str, Any]]", self._ask("GET", "/v1/peers")["peers"])

    def discovery(self, feed: str | None = None) -> Mapping[str, Any]:
        """The search for a feed's peers: `enabled`, `dht`, `tracker`, `swarm`, `lan`, `found`."""
        return self._ask("GET", feed_path(feed, "/discovery"))

    def snapshot(self, target: Path) -> Mapping[str, Any]:
        """Takes a snapshot into a new folder (an absolute path, seen from the node)."""
        return self._ask("POST", "/v1/snapshots", {"target": str(target)})

    def verify(self) -> Mapping[str, Any]:
        """Walks the node's store: `ok`, `problems`, `values`."""
        return self._ask("POST", "/v1/verify", {})

    def reload(self) -> Mapping[str, Any]:
        """Has the node read its configuration anew: `changed` and `needs_restart`."""
        return self._ask("POST", "/v1/reload", {})

    def offer_session(self) -> SessionOfferForm:
        """A link to the status page that lets one browser in, once and soon."""
        return cast("SessionOfferForm", self._ask("POST", "/v1/sessions", {}))

    # Feeds

    def feeds(self) -> list[FeedForm]:
        """Every feed of the node."""
        return cast("list[FeedForm]", self._ask("GET", "/v1/feeds")["feeds"])

    def feed(self, feed: str | None = None) -> FeedForm:
        """One feed."""
        return cast("FeedForm", self._ask("GET", feed_path(feed)))

    def join_feed(self, settings: Mapping[str, Any]) -> FeedForm:
        """Takes part in a feed; `settings` as `FeedSettings.to_json` gives them."""
        return cast("FeedForm", self._ask("POST", "/v1/feeds", settings))

    def leave_feed(self, feed: str) -> None:
        """Leaves a feed and removes its values."""
        self._ask("DELETE", feed_path(feed))

    # Values

    def put(self, values: Sequence[bytes], *, feed: str | None = None) -> PutForm:
        """Stores 1 to 10,000 values; returns once they are on disk."""
        body = {"values": _hex_list(values)}
        return cast("PutForm", self._ask("POST", feed_path(feed, "/values"), body))

    def range_page(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        limit: int | None = None,
    ) -> tuple[list[bytes], bytes | None]:
        """A page of values in byte order, and where the next one starts (None: no more)."""
        query = {"start": start.hex()}
        if end is not None:
            query["end"] = end.hex()
        if limit is not None:
            query["limit"] = str(limit)
        path = feed_path(feed, f"/values?{urlencode(query)}")
        page = cast("RangeForm", self._ask("GET", path))
        following = page["next"]
        values = list(map(bytes.fromhex, page["values"]))
        return values, None if following is None else bytes.fromhex(following)

    def range(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        limit: int | None = None,
    ) -> Iterator[bytes]:
        """The values with start <= value < end in byte order, at most `limit`."""
        for page in self.pages(feed=feed, start=start, end=end, limit=limit):
            yield from page

    def pages(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        limit: int | None = None,
        page: int = 10_000,
    ) -> Iterator[list[bytes]]:
        """Like `range`, in the lists of at most `page` values in which they come."""
        left, position = limit, start
        while left is None or left > 0:
            most = page if left is None else min(left, page)
            values, following = self.range_page(feed=feed, start=position, end=end, limit=most)
            yield values
            if following is None:
                return
            position = following
            left = None if left is None else left - len(values)

    def has(self, values: Sequence[bytes], *, feed: str | None = None) -> list[bool]:
        """Which of 1 to 10,000 values are there."""
        answer = self._ask("POST", feed_path(feed, "/has"), {"values": _hex_list(values)})
        return cast("list[bool]", answer["has"])

    def count(self, *, feed: str | None = None) -> Mapping[str, Any]:
        """count, bytes and digest."""
        return self._ask("GET", feed_path(feed, "/count"))

    def fetch(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        limit: int | None = None,
        timeout: float,
    ) -> int:
        """Has the node ask its peers for a range it does not keep; how many values came."""
        body = {
            "start": start.hex(),
            "end": None if end is None else end.hex(),
            "limit": limit,
            "timeout": timeout,
        }
        return cast("int", self._ask("POST", feed_path(feed, "/fetch"), body)["received"])

    def wait_synced(
        self, peers: Sequence[str], *, feed: str | None = None, timeout: float
    ) -> Mapping[str, Any]:
        """Waits until each peer (key, beginning of a key, address) holds the same as the node.

        `count` and `digest` of the feed, and for each of `peers` its key, address, `at`, `source`.
        """
        body = {"peers": list(peers), "timeout": timeout}
        return self._ask("POST", feed_path(feed, "/synced"), body)

    # What one peer brought, and what is forgotten

    def values_by(
        self, key: bytes, *, feed: str | None = None, page: int = 5_000
    ) -> Iterator[list[dict[str, Any]]]:
        """What a peer brought, in the order of arrival: `seq`, `value` (hex), `received_at`."""
        after: int | None = 0
        while after is not None:
            query = urlencode({"after": after, "limit": page})
            answer = self._ask("GET", feed_path(feed, f"/by/{key.hex()}?{query}"))
            yield cast("list[dict[str, Any]]", answer["values"])
            after = cast("int | None", answer["next"])

    def forget(
        self, selection: Mapping[str, Any], *, feed: str | None = None, **more: bool
    ) -> Iterator[Mapping[str, Any]]:
        """Forgets values, a step at a time: `count`, `bytes`, `absent` of each.

        `selection`: `{"values": [hex, …]}`, `{"by": key in hex}` or `{"start": hex, "end": hex}`.
        `more`: erase, dry_run, publish. Goes on only as it is read.
        """
        return self._steps(feed_path(feed, "/forget"), {**selection, **more})

    def undo_forgetting(
        self, selection: Mapping[str, Any], *, feed: str | None = None, dry_run: bool = False
    ) -> Iterator[Mapping[str, Any]]:
        """Brings forgotten values back, a step at a time; see `forget`."""
        body = {**selection, "dry_run": dry_run}
        return self._steps(feed_path(feed, "/forgotten/undo"), body)

    def _steps(self, path: str, body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        after: Mapping[str, Any] = {}
        while True:
            answer = self._ask("POST", path, {**body, **after})
            yield answer
            if answer["next"] is None:
                return
            after = {"after": answer["next"]}

    def drop_forgotten_hashes(self, *, feed: str | None = None) -> None:
        """Lets all values come again of which only the hash is kept."""
        self._ask("DELETE", feed_path(feed, "/forgotten/hashes"))

    def forgotten_page(
        self, *, feed: str | None = None, start: bytes = b"", end: bytes | None = None
    ) -> tuple[list[bytes], bytes | None, int]:
        """A page of the forgotten values kept whole, the next one's start, and how many hashes."""
        query = {"start": start.hex(), "limit": "10000"}
        if end is not None:
            query["end"] = end.hex()
        page = self._ask("GET", feed_path(feed, f"/forgotten?{urlencode(query)}"))
        following = page["next"]
        values = list(map(bytes.fromhex, page["values"]))
        return values, None if following is None else bytes.fromhex(following), page["hashes"]

    # Trust

    def deny(self, key: bytes, reason: str = "") -> Mapping[str, Any]:
        """Denies a key on this node; `new`: whether it was not denied before."""
        return self._ask("POST", "/v1/denied", {"key": key.hex(), "reason": reason})

    def allow(self, key: bytes) -> Mapping[str, Any]:
        """Denies a key no more; `was_denied`."""
        return self._ask("DELETE", f"/v1/denied/{key.hex()}")

    def denied(self) -> list[dict[str, Any]]:
        """The denied keys: `key`, `denied_at`, `reason`."""
        return cast("list[dict[str, Any]]", self._ask("GET", "/v1/denied")["denied"])

    def issue_link(
        self, trustee: bytes, *, expires: float, feed: str | None = None
    ) -> Mapping[str, Any]:
        """Signs a link for another node: `link` in hex and `expires`."""
        body = {"trustee": trustee.hex(), "expires": _expiry(expires)}
        return self._ask("POST", feed_path(feed, "/links"), body)

    def add_links(self, links: Sequence[bytes], *, feed: str | None = None) -> Mapping[str, Any]:
        """Stores a chain of links: `holder`, `links`, `expires`."""
        return self._ask("POST", feed_path(feed, "/chains"), {"links": _hex_list(links)})

    def links(self, *, feed: str | None = None) -> list[LinkForm]:
        """Every link stored for the feed."""
        return cast("list[LinkForm]", self._ask("GET", feed_path(feed, "/links"))["links"])

    def members(self, *, feed: str | None = None) -> list[MemberForm]:
        """Who may write."""
        answer = self._ask("GET", feed_path(feed, "/members"))
        return cast("list[MemberForm]", answer["members"])

    def invite(
        self,
        trustee: bytes,
        *,
        expires: float,
        addresses: Sequence[str] | None = None,
        feed: str | None = None,
    ) -> InvitationForm:
        """Makes an invitation; without `addresses` it holds those of the node."""
        body: dict[str, Any] = {"trustee": trustee.hex(), "expires": _expiry(expires)}
        if addresses is not None:
            body["addresses"] = list(addresses)
        return cast("InvitationForm", self._ask("POST", feed_path(feed, "/invitations"), body))

    def accept(self, invitation: str, **settings: Any) -> FeedForm:
        """Takes an invitation; `settings` may be alias, mode, ranges, dialect."""
        body = {"invitation": invitation, **settings}
        return cast("FeedForm", self._ask("POST", "/v1/invitations", body))

    # Objects

    def objects_page(
        self, *, after: str | None = None, limit: int | None = None
    ) -> tuple[list[ObjectForm], str | None]:
        """Objects in the order of their hashes, and the hash to go on after (None: no more)."""
        query = {"after": after, "limit": None if limit is None else str(limit)}
        given = urlencode({name: text for name, text in query.items() if text is not None})
        page = self._ask("GET", f"/v1/objects?{given}" if given else "/v1/objects")
        return page["objects"], page["next"]

    def objects(self) -> Iterator[ObjectForm]:
        """Every object of the pool, page by page."""
        after: str | None = None
        while True:
            page, after = self.objects_page(after=after)
            yield from page
            if after is None:
                return

    def object(self, number: str) -> ObjectForm:
        """One object by its hash (16 hex digits)."""
        return cast("ObjectForm", self._ask("GET", _object_path(number)))

    def add_object(
        self, fields: Mapping[str, Any], *, type_name: str | None = None, number: str | None = None
    ) -> ObjectForm:
        """Adds an object; returns once it is on disk. `fields` as JSON."""
        body = {"fields": dict(fields), "type": type_name, "hash": number}
        return cast("ObjectForm", self._ask("POST", "/v1/objects", body))

    def change_object(
        self, number: str, fields: Mapping[str, Any], *, changed: str | None = None
    ) -> ObjectForm:
        """Changes fields of an object; its hash is another one then."""
        body = {"fields": dict(fields), "hash": changed}
        return cast("ObjectForm", self._ask("PATCH", _object_path(number), body))

    def remove_object(self, number: str) -> None:
        """Removes an object."""
        self._ask("DELETE", _object_path(number))

    def watch_objects(self, *, seconds: float | None = None) -> Iterator[ObjectEvent | None]:
        """What happens to objects; the first item is None: from then on nothing is missed.

        Ends with `NodeTimeout` after `seconds`, with `NodeUnreachable` when the node stops, with
        `Problem` when this reader falls behind.
        """
        count = 0
        events = self._events("/v1/objects/watch", seconds)
        next(events)
        yield None
        for kind, event in events:
            count += 1
            yield ObjectEvent(kind, event["before"], event["after"])
        came = f"{count:,} changes and no more" if count else "nothing"
        raise NodeTimeout(f"{came} happened within {seconds:g} s")

    # Watching

    def watch(
        self,
        *,
        feed: str | None = None,
        start: bytes = b"",
        end: bytes | None = None,
        after: int | None = None,
        seconds: float | None = None,
    ) -> Iterator[Arrival | None]:
        """Values as they arrive; the first item is None: from then on nothing is missed.

        after: arrival number to begin behind (0: everything), default what arrives from now on.
        Ends with `NodeTimeout` after `seconds`, with `NodeUnreachable` when the node stops, with
        `Problem` when the feed is left.
        """
        query = {"start": start.hex()}
        if end is not None:
            query["end"] = end.hex()
        if after is not None:
            query["after"] = str(after)
        path = feed_path(feed, f"/watch?{urlencode(query)}")
        count = 0
        events = self._events(path, seconds)
        next(events)
        yield None
        for _, event in events:
            count += 1
            yield arrival_of(event)

        came = (
            f"{count:,} {'value' if count == 1 else 'values'} and no more" if count else "no value"
        )
        raise NodeTimeout(f"{came} came within {seconds:g} s")

    def _events(self, path: str, seconds: float | None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Kind and data of the events that come within `seconds`; the first item says "begun"."""
        response = self._send("GET", path, None)
        if response.status != 200:
            self._result(response)
        yield "begun", {}
        kind = ""
        for line in self._lines(response, seconds):
            name, _, text = line.partition(b": ")
            if name == b"event":
                kind = text.decode("ascii")
            elif name == b"data":
                event = json.loads(text)
                if kind == "problem":
                    raise problem_of(event)
                yield kind, event

    def _lines(self, response: http.client.HTTPResponse, seconds: float | None) -> Iterator[bytes]:
        """What comes within `seconds`."""
        connection = cast("socket.socket", self._connection.sock)
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        rest = b""
        while True:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                connection.settimeout(min(left, SILENT_SECONDS))
                part = response.read1(_STREAM_BYTES)
            except TimeoutError:
                self.close()
                if left <= SILENT_SECONDS:
                    return
                raise NodeTimeout(
                    f"the node has been silent for {SILENT_SECONDS:g} s: it hangs"
                ) from None
            except (OSError, http.client.HTTPException):
                part = b""
            if not part:
                raise NodeUnreachable("the node has stopped")
            *lines, rest = (rest + part).split(b"\n")
            yield from lines

    # The request

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any]:
        return cast("Mapping[str, Any]", self._result(self._send(method, path, body)))

    def _send(
        self, method: str, path: str, body: Mapping[str, Any] | None
    ) -> http.client.HTTPResponse:
        data = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        headers = dict(self._connection.headers)
        if data is not None:
            headers["Content-Type"] = "application/json"
        reused = self._connection.sock is not None
        try:
            self._connection.request(method, path, data, headers)
            return self._connection.getresponse()
        except TimeoutError:
            self.close()
            raise self._too_slow() from None
        except (ConnectionError, http.client.HTTPException, OSError) as error:
            self.close()
            if reused and isinstance(error, (ConnectionError, http.client.RemoteDisconnected)):
                # The node closes idle connections. Asking again is safe: putting twice, joining
                # twice or leaving twice is the same as once, and a second link is only a link.
                return self._send(method, path, body)
            raise self._unreachable(error) from None

    def _too_slow(self) -> NodeTimeout:
        return NodeTimeout(
            f"the node did not answer within {self._timeout:g} s; it may still do what was asked"
        )

    def _unreachable(self, error: Exception) -> NodeUnreachable:
        if isinstance(error, (FileNotFoundError, ConnectionRefusedError, NotADirectoryError)):
            return NodeUnreachable(
                f"no node runs on {self._path.parent}; start it with `{self._run_command}`"
            )
        if isinstance(error, PermissionError):
            return NodeUnreachable(
                f"{self._path} belongs to another user; run this as the user of the node"
            )
        return NodeUnreachable(f"the node on {self._path} broke off ({error})")

    def _result(self, response: http.client.HTTPResponse) -> Any:
        try:
            data = response.read()
        except TimeoutError:
            self.close()
            raise self._too_slow() from None
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._unreachable(error) from None
        if response.status == 204:
            return None
        try:
            answer = json.loads(data)
        except ValueError:
            raise NodeUnreachable(
                f"what listens on {self._path} does not speak as a node does"
            ) from None
        if response.status < 400:
            return answer
        raise problem_of(answer)
