"""Nodes in memory with inputs; what reads sources runs where it is called."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, succeed

sys.path.insert(0, str(Path(__file__).parent.parent / "replication"))

from players import fired
from sim import Network, SimNode

from hyperbloom.https import RequestFailed
from hyperbloom.inputs import reading
from hyperbloom.inputs.reading import Request
from hyperbloom.inputs.sources import Fetched, Validators
from hyperbloom.integrations.commands import CommandFailed, Ended
from hyperbloom.integrations.inputs import READER, Input
from hyperbloom.integrations.integration import IntegrationContext
from hyperbloom.integrations.service import IntegrationsService
from hyperbloom.integrations.settings import InputSettings, IntegrationsSettings
from hyperbloom.replication.feed.tombstones import TOMBSTONE
from hyperbloom.replication.settings import SyncSettings

#: No chance in how often a source is read.
SYNC = SyncSettings(interval=5.0, answer_wait=0.5, jitter=0.0)


class Reader:
    """Runs the reader of sources where it is called; it answers at once, unless `hanging`.

    `pages` are what servers have, by URL; each knows its ETag. What the reader asks them about is
    in `asked`, an ETag or None.
    """

    def __init__(self) -> None:
        self.runs = 0
        self.pages: dict[str, list[bytes]] = {}
        self.asked: list[str | None] = []
        self.output: bytes | None = None
        self.killed = False
        self.hanging: list[Deferred[Ended]] | None = None

    def run(self, arguments: Any, *, seconds: float, given: bytes, quiet: bool) -> Deferred[Ended]:
        assert arguments == READER
        request = Request(**json.loads(given))
        assert list(Path(request.folder).iterdir()) == []
        self.runs += 1
        if self.killed:
            raise CommandFailed("python3 was ended by SIGKILL")
        if self.hanging is not None:
            self.hanging.append(Deferred())
            return self.hanging[-1]
        output = self.output
        if output is None:
            fetch, reading.fetch = reading.fetch, self._fetch
            try:
                output = json.dumps(reading.answer_to(request, now=time.monotonic())).encode()
            finally:
                reading.fetch = fetch
        return succeed(Ended(output=output))

    def _fetch(self, url: str, folder: Path, *, known: Validators, **_: Any) -> Fetched:
        self.asked.append(known.etag)
        if url not in self.pages:
            raise RequestFailed("nobody answers; try later")
        text = b"\n".join(self.pages[url])
        validators = Validators(etag=f'"{hashlib.sha256(text).hexdigest()}"')
        is_known = known.etag == validators.etag
        return Fetched(page=None if is_known else io.BytesIO(text), validators=validators)


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
