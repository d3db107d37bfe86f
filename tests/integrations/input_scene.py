"""Nodes in memory with inputs, and a reader of sources that runs where it is called."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed

sys.path.insert(0, str(Path(__file__).parent.parent / "replication"))

from players import fired
from sim import Network, SimNode

from hyperbloom.integrations.commands import CommandFailed, Ended
from hyperbloom.integrations.inputs import Input
from hyperbloom.integrations.integration import IntegrationContext
from hyperbloom.integrations.service import IntegrationsService
from hyperbloom.integrations.settings import InputSettings, IntegrationsSettings
from hyperbloom.replication.feed.tombstones import TOMBSTONE
from hyperbloom.replication.settings import SyncSettings

#: No chance in how often a source is read.
SYNC = SyncSettings(interval=5.0, answer_wait=0.5, jitter=0.0)


class Reader:
    """Stands for the process that reads sources: it speaks the same, of lines alone.

    It answers at once, unless `hanging`. A URL is a server that knows its ETag.
    """

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.sources: dict[str, list[bytes]] = {}
        self.problem: str | None = None
        self.output: bytes | None = None
        self.killed = False
        self.hanging: list[Deferred[Ended]] | None = None

    def run(self, arguments: Any, *, seconds: float, given: bytes, quiet: bool) -> Deferred[Ended]:
        request = json.loads(given)
        self.requests.append(request)
        if self.killed:
            raise CommandFailed("python3 was ended by SIGKILL")
        if self.hanging is not None:
            self.hanging.append(Deferred())
            return self.hanging[-1]
        answer = self.output
        if answer is None:
            answer = json.dumps(self._answer(request)).encode() + b"\n"
        return succeed(Ended(output=answer))

    def _answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["url"] not in (None, *self.sources):
            return {"outcome": "failed", "problem": "nobody answers; try later"}
        if self.problem is not None:
            return {"outcome": "failed", "problem": self.problem}
        known_path, folder = Path(request["known"]), Path(request["folder"])
        assert list(folder.iterdir()) == []
        known = set(known_path.read_bytes().split(b"\n")) - {b""} if known_path.exists() else set()
        lines, etag = self._source(request)
        if etag is not None and etag == request["etag"]:
            assert known_path.exists(), "an ETag without what is known"
            return {"outcome": "unchanged", "values": len(known), "etag": etag}
        there = set(lines) - {b""}
        long = {value for value in there if len(value) > request["max_value_bytes"]}
        there -= long
        for name, values in (("new", there - known), ("gone", known - there), ("next", there)):
            (folder / name).write_bytes(b"\n".join(sorted(values)))
        return {
            "outcome": "read",
            "values": len(there),
            "new": len(there - known),
            "gone": len(known - there),
            "left_out": {"too_long": len(long)} if long else {},
            "etag": etag,
            "last_modified": None,
        }

    def _source(self, request: dict[str, Any]) -> tuple[list[bytes], str | None]:
        if request["path"] is not None:
            return Path(request["path"]).read_bytes().split(b"\n"), None
        lines = self.sources[request["url"]]
        return lines, f'"{hash(tuple(lines))}"'


class Place:
    """One node with inputs: `node` is of the network in memory, `data` its folder."""

    def __init__(self, network: Network, node: SimNode, feed: bytes, data: Path) -> None:
        self.network, self.node, self.feed_key, self.data = network, node, feed, data
        self.reader = Reader()
        self.service: IntegrationsService | None = None
        node.context.sync = SYNC

    @property
    def feed(self):
        return self.node.feed(self.feed_key)

    def follow(self, whom: str) -> None:
        """Whose tombstones the feed follows here."""
        self.feed.settings = replace(self.feed.settings, tombstones=whom)

    def source(self, name: str) -> Path:
        return self.data.parent / f"{name}.txt"

    def list(self, name: str, *values: bytes) -> None:
        """Have the source of an input list these values and no others."""
        aside = self.source(name).with_suffix(".aside")
        aside.write_bytes(b"".join(value + b"\n" for value in values))
        os.replace(aside, self.source(name))

    def settings(self, name: str, **more: Any) -> InputSettings:
        where = {} if "url" in more else {"path": self.source(name)}
        return InputSettings(name=name, feed=self.feed_key.hex(), **{**where, **more})

    def start(self, *settings: InputSettings) -> None:
        """Start these inputs and let them run for the first time."""
        context = IntegrationContext(
            node=self.node.node,
            commands=self.reader,
            data=self.data,
            store_path=self.node.store.path,
            clock=self.network.clock,
            now=self.network.now,
        )
        self.service = IntegrationsService(IntegrationsSettings(inputs=settings), context)
        self.service._context.commands.start = lambda: None
        self.service._context.commands.stop = lambda: succeed(None)
        self.service.startService()
        self.network.clock.advance(0)

    def stop(self) -> None:
        assert self.service is not None
        fired(self.service.stopService())

    def one(self, name: str) -> Input:
        assert self.service is not None
        found = self.service.find("input", name)
        assert isinstance(found, Input)
        return found

    def run(self, name: str, *, force: bool = False) -> None:
        """Read the source now; raises as the run does."""
        fired(self.one(name).run(force=force))

    def status(self, name: str):
        return self.one(name).status()

    def figures(self, name: str) -> dict[str, int]:
        """Those that are not 0."""
        return {key: n for key, n in self.one(name).figures().items() if n}

    def known(self, name: str) -> set[bytes]:
        return set((self.data / "inputs" / name / "known").read_bytes().split(b"\n")) - {b""}

    def values(self) -> list[bytes]:
        """The feed's, without tombstones."""
        return values_of(self.node, self.feed_key)

    def tombstones(self) -> list[bytes]:
        return [v for v in self.node.values(self.feed_key) if v.startswith(TOMBSTONE)]


def values_of(node: SimNode, feed: bytes) -> list[bytes]:
    """A feed's values at a node, without tombstones."""
    return [value for value in node.values(feed) if not value.startswith(TOMBSTONE)]
