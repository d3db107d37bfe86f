"""An output of a real feed in a real store, with real threads and a clock of its own."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from pumped_reactor import CEILING, PumpedReactor
from twisted.internet.defer import Deferred, execute
from twisted.internet.task import Clock

from hyperbloom.errors import HyperbloomError
from hyperbloom.integrations.commands import Commands, Ended
from hyperbloom.integrations.integration import IntegrationContext
from hyperbloom.integrations.outputs import RENDERING, Output
from hyperbloom.integrations.settings import OutputSettings
from hyperbloom.keys import Identity
from hyperbloom.outputs.rendering import Request, render
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feeds import UnknownFeed
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import FeedSettings, SyncSettings
from hyperbloom.store import PutFeed, Store, WriterInline

NOW = 1_800_000_000.0


class QuickCommands(Commands):
    """Writes files in a thread of this process: to start Python takes most of a test's time."""

    def __init__(self, reactor: Any, store: Store) -> None:
        super().__init__(reactor)
        self._store = store

    def run(self, arguments: Sequence[str], *, given: bytes = b"", **more: Any) -> Deferred[Ended]:
        if arguments != RENDERING:
            return super().run(arguments, given=given, **more)
        request = Request(**json.loads(given) | {"parent": os.getppid()})

        def answer() -> Ended:
            try:
                found = asdict(render(self._store, request, now=NOW))
            except HyperbloomError as error:
                found = {"problem": str(error)}
            return Ended(output=json.dumps(found).encode())

        return self.in_thread(answer)


class OutputScene:
    """A node with the feeds `names` and `ours`, and an output that may begin again.

    With `is_quick` there is no process that writes the file.
    """

    def __init__(self, folder: Path, *, is_quick: bool) -> None:
        self.folder = folder
        self.path = folder / "out" / "hosts"
        self.path.parent.mkdir()
        self.reactor = PumpedReactor()
        self.clock = Clock()
        self.store = Store.open(folder / "store", durable=False)
        self._feed_context = self._made_context()
        self.feeds = {name: self._made_feed(name) for name in ("names", "ours")}
        self.hidden: set[str] = set()
        self.commands = (
            QuickCommands(self.reactor, self.store) if is_quick else Commands(self.reactor)
        )
        self.commands.start()
        self.output: Output | None = None

    def _made_context(self) -> FeedContext:
        return FeedContext(
            identity=Identity(bytes(32)),
            store=self.store,
            writer=WriterInline(self.store),
            limits=Limits(),
            sync=SyncSettings(),
            clock=self.clock,
            now=lambda: NOW,
            random_bytes=os.urandom,
            in_thread=execute,
            work_seconds=time.thread_time,
            peer_id=bytes(32),
        )

    def _made_feed(self, name: str) -> Feed:
        settings = FeedSettings(key=Identity(name.encode().ljust(32)).public_key, alias=name)
        made = PutFeed(feed_key=settings.key, settings=settings.to_json())
        record = self.done(self._feed_context.written(made))
        return Feed(settings, record, self._feed_context)

    def resolve(self, name: str | None) -> Feed:
        """As a node does."""
        if name not in self.feeds or name in self.hidden:
            raise UnknownFeed("there is none")
        return self.feeds[name]

    def begin(self, **settings: Any) -> Output:
        """Start an output; its first run is over when this returns, well or not."""
        context = IntegrationContext(
            node=cast("Any", self),
            commands=self.commands,
            data=self.folder,
            store_path=self.store.path,
            clock=self.clock,
            now=lambda: NOW + self.clock.seconds(),
        )
        given = {"name": "one", "feed": "names", "format": "hosts", "path": self.path, **settings}
        self.output = Output(OutputSettings(**given), context)
        self.output.start()
        self.until(lambda: self.runs > 0)
        return self.output

    @property
    def runs(self) -> int:
        """Runs that are over."""
        assert self.output is not None
        status = self.output.status()
        return 0 if status.state == "working" else status.runs

    def put(self, *values: bytes, feed: str = "names") -> None:
        """Store values."""
        self.feeds[feed].values.insert(values)

    def forget(self, *values: bytes, feed: str = "names") -> None:
        """Forget values."""
        self.done(Deferred.fromCoroutine(self.feeds[feed].forgetting.forget(values)))

    def restore(self, *values: bytes) -> None:
        """Bring forgotten values back."""
        self.done(Deferred.fromCoroutine(self.feeds["names"].forgetting.restore(values)))

    def done(self, deferred: Deferred[Any]) -> Any:
        """What it fires with."""
        return self.reactor.wait(deferred)

    def until(self, reached: Callable[[], object]) -> None:
        """Let threads and the clock go on until it is so."""
        end = time.monotonic() + CEILING
        while not reached():
            assert time.monotonic() < end, "not reached"
            self.reactor.turn(0.005)
            self.clock.advance(0.02)

    def settle(self) -> None:
        """Until nothing runs and nothing is due soon."""
        output = self.output
        assert output is not None

        def is_quiet() -> bool:
            status = output.status()
            due = status.next_run
            return status.state != "working" and (
                due is None or due > NOW + self.clock.seconds() + 4.0
            )

        self.until(is_quiet)

    def pass_time(self, seconds: float) -> None:
        """Move the clock, and do what is due."""
        self.clock.advance(seconds)
        self.settle()

    @property
    def lines(self) -> list[bytes]:
        """The file."""
        return self.path.read_bytes().splitlines()

    def stop(self) -> None:
        """End the output."""
        if self.output is not None:
            self.done(self.output.stop())
            self.output = None

    def close(self) -> None:
        """End all."""
        self.stop()
        self.done(self.commands.stop())
        self.reactor.stop()
        self.store.close()
