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
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from hyperbloom.addresses import parse_host_port
from hyperbloom.api.control_socket import connect_unix
from hyperbloom.api.limits import MAX_VALUES, SILENT_SECONDS
from hyperbloom.client.requests import (
    Arrival,
    Closing,
    EventReader,
    NodeTimeout,
    NodeUnreachable,
    ObjectEvent,
    answer_of,
    arrival_of,
    feed_path,
    hex_list,
    page_of,
    problem_of,
    range_request,
    with_query,
)
from hyperbloom.passphrase import load_passphrase

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import (
        FeedForm,
        InvitationForm,
        LinkForm,
        MemberForm,
        PutForm,
        SessionOfferForm,
    )
    from hyperbloom.api.schemas.objects import ObjectForm, TypeForm

__all__ = [
    "Arrival",
    "Client",
    "NodeTimeout",
    "NodeUnreachable",
    "ObjectEvent",
]

#: Read at once from a watch.
_STREAM_BYTES = 65_536


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


def _object_path(number: str) -> str:
    return f"/v1/objects/{quote(number, safe='')}"


def _expiry(moment: float) -> float | None:
    """A moment as JSON can hold it: infinity, never, is null."""
    return moment if math.isfinite(moment) else None


class Client(Closing):
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
        self._where = f"on {path}"
        self._timeout = timeout
        self._hint = f"no node runs on {path.parent}; start it with `{run_command}`"
        self._connection: _Connection | _TcpConnection = _Connection(path, timeout)

    @classmethod
    def over_tcp(cls, address: str, token: Path, *, timeout: float | None = None) -> Client:
        """A client of the node whose `[api] listen` is `address` and whose token file is `token`.

        Raises `ValueError` for an address that is not HOST:PORT, `PassphraseError` for a token
        that cannot be read.
        """
        host, port = parse_host_port(address)
        client = cls(Path(address), timeout=timeout)
        client._hint = f'no node answers at {address}; start it with [api] listen = "{address}"'
        text = load_passphrase(token, what="token")
        client._connection = _TcpConnection(host, port, timeout, text)
        return client

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

    def leave_feed(self, feed: str, *, delete_key: bool = False) -> None:
        """Leaves a feed and removes its values; `delete_key`: the feed's key, too."""
        query = "yes" if delete_key else None
        self._ask("DELETE", with_query(feed_path(feed), delete_key=query))

    def create_feed(self, alias: str, *, dialect: str | None = None) -> FeedForm:
        """Makes a feed with a key pair of its own, which stays at the node."""
        body = {"alias": alias, "dialect": dialect}
        return cast("FeedForm", self._ask("POST", "/v1/owned", body))

    def read_keys(self) -> list[FeedForm]:
        """Has the node read its folder of feeds' keys anew; the feeds that it owns from now on."""
        return cast("list[FeedForm]", self._ask("POST", "/v1/owned/read", {})["feeds"])

    def release_key(self, *, feed: str, expires: float) -> Mapping[str, Any]:
        """Removes a feed's key from the node, which goes on as a member: `link` and `expires`."""
        body = {"expires": _expiry(expires)}
        return self._ask("POST", feed_path(feed, "/release"), body)

    def copy_values(self, *, source: str, feed: str) -> Iterator[Mapping[str, Any]]:
        """Copies one feed's values into another, a step at a time; goes on only as it is read."""
        return self._steps(feed_path(feed, "/copy"), {"source": source})

    # Values

    def put(self, values: Sequence[bytes], *, feed: str | None = None) -> PutForm:
        """Stores 1 to 10,000 values; returns once they are on disk."""
        body = {"values": hex_list(values)}
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
        return page_of(self._ask(*range_request(feed, "/values", start, end, limit=limit)))

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
        answer = self._ask("POST", feed_path(feed, "/has"), {"values": hex_list(values)})
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
            path = with_query(feed_path(feed, f"/by/{key.hex()}"), after=after, limit=page)
            answer = self._ask("GET", path)
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
        page = self._ask(*range_request(feed, "/forgotten", start, end, limit=MAX_VALUES))
        return *page_of(page), page["hashes"]

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
        return self._ask("POST", feed_path(feed, "/chains"), {"links": hex_list(links)})

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
        page = self._ask("GET", with_query("/v1/objects", after=after, limit=limit))
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

    def object_types(self) -> list[TypeForm]:
        """The declared types, by name."""
        return cast("list[TypeForm]", self._ask("GET", "/v1/objects/types")["types"])

    def declare_type(self, name: str, fields: Mapping[str, str]) -> TypeForm:
        """Declares a class of a Java program, or declares it anew; returns once it is on disk.

        `fields`: names and types (`int`, `String`, …), in the order `Objects.hash` has there.
        """
        listed = [{"name": field, "type": kind} for field, kind in fields.items()]
        body = {"name": name, "fields": listed}
        return cast("TypeForm", self._ask("POST", "/v1/objects/types", body))

    def undeclare_type(self, name: str) -> None:
        """The type is declared no more; its objects stay as they are."""
        self._ask("DELETE", f"/v1/objects/types/{quote(name, safe='')}")

    def watch_objects(self, *, seconds: float | None = None) -> Iterator[ObjectEvent | None]:
        """What happens to objects; the first item is None: from then on nothing is missed.

        Ends with `NodeTimeout` after `seconds`, with `NodeUnreachable` when the node stops, with
        `Problem` when this reader falls behind.
        """
        count = -1  # the first says that the watch has begun
        for event in self._events("GET", "/v1/objects/watch", None, seconds):
            count += 1
            if event is None:
                yield None
            else:
                kind, form = event
                yield ObjectEvent(kind, form["before"], form["after"])
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
        request = range_request(feed, "/watch", start, end, after=after)
        count = -1  # the first says that the watch has begun
        for event in self._events(*request, seconds):
            count += 1
            yield None if event is None else arrival_of(event[1])
        came = (
            f"{count:,} {'value' if count == 1 else 'values'} and no more" if count else "no value"
        )
        raise NodeTimeout(f"{came} came within {seconds:g} s")

    def _events(
        self, method: str, path: str, body: Mapping[str, Any] | None, seconds: float | None
    ) -> Iterator[tuple[str, dict[str, Any]] | None]:
        """None once the watch has begun, then kind and data of what comes within `seconds`."""
        response = self._send(method, path, body)
        if response.status != 200:
            self._result(response)
        reader = EventReader(where=self._where)
        try:
            yield None
            for part in self._parts(response, seconds):
                for kind, form in reader.take(part):
                    if kind == "problem":
                        raise problem_of(form)
                    yield kind, form
        finally:
            self.close()  # what is left of the answer is in the way of the next request

    def _parts(self, response: http.client.HTTPResponse, seconds: float | None) -> Iterator[bytes]:
        """What comes within `seconds`."""
        connection = cast("socket.socket", self._connection.sock)
        deadline = math.inf if seconds is None else time.monotonic() + seconds
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
            yield part

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
            return NodeUnreachable(self._hint)
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
        return answer_of(response.status, data, where=self._where)
