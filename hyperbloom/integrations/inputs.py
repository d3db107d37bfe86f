"""An input: what a source lists are values of a feed, as long as the source lists them.

A process of its own reads the source (`hyperbloom.inputs.reading`) and says what differs from what
it held the last time. The node puts what is new, and takes back what is gone and was brought here
by itself: it puts its tombstone, and forgets the value. `input_folder` has what is kept on disk,
and why a node that is killed in between comes to the same end.
"""

from __future__ import annotations

import json
import math
import os
import sys
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, succeed

from hyperbloom.connections.timer import Timer
from hyperbloom.integrations.commands import CommandFailed
from hyperbloom.integrations.input_folder import (
    InputFolder,
    InputState,
    Reading,
    batches,
    listed_in,
)
from hyperbloom.integrations.integration import Integration, IntegrationContext, IntegrationFailed
from hyperbloom.integrations.limits import ENDING_SECONDS, TAKE_BACK_STEP, WATCH_SECONDS
from hyperbloom.integrations.settings import InputSettings
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.tombstones import make_tombstone
from hyperbloom.store.records import Appended

__all__ = ["READER", "Input"]

T = TypeVar("T")

#: What reads a source; `-P`: nothing is imported from where the node was started.
READER = (sys.executable, "-P", "-m", "hyperbloom.inputs.reading")

#: By which a file is as it was: device, inode, size, time of change; None: it is not there.
_Mark = tuple[int, int, int, int] | None


class Input(Integration[InputSettings]):
    """One input. It runs at the start, every so often, and soon after its file has changed."""

    kind = "input"

    def __init__(self, settings: InputSettings, context: IntegrationContext) -> None:
        super().__init__(settings, context)
        self._folder = InputFolder(_folder_of(context.data, settings.name))
        self._watching = Timer(context.clock, self._watch)
        #: Of the file as it was read, and as it was looked at last.
        self._read_mark: _Mark = None
        self._seen_mark: _Mark = None
        self._held = False
        #: Of the last reading.
        self._read: dict[str, int] = {}
        #: Since the start.
        self._done: Counter[str] = Counter()
        #: Fires when what a run began last is over, though nobody waits for that any more.
        self._beside: Deferred[None] = succeed(None)

    def start(self) -> None:
        """Look for the feed, and begin."""
        super().start()
        if self.settings.path is not None:
            self._watching.set(self.context.clock.seconds() + WATCH_SECONDS)

    def stop(self) -> Deferred[None]:
        """End what runs; fires when it has ended, and touches the folder no more."""
        self._watching.set(None)

        def ended(_: object) -> Deferred[None]:
            over: Deferred[None] = Deferred()
            self._beside.addBoth(lambda _: over.callback(None))
            return over

        return super().stop().addCallback(ended)

    @property
    def target(self) -> str:
        """The file, or the host of the URL: what is behind that may be secret."""
        if self.settings.url is None:
            return str(self.settings.path)
        parts = urllib.parse.urlsplit(self.settings.url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def held(self) -> bool:
        """Whether more is gone from the source than may go without somebody's word."""
        return self._held

    def figures(self) -> dict[str, int]:
        """Of the last reading: values, new, gone, left_out, and left_out_… by reason.

        Since the start: put, taken_back; of what has gone from the source kept_of_others,
        kept_in_other_inputs and gone_kept; kept_forgotten, which were listed and stay forgotten.
        """
        names = ("put", "taken_back", "kept_of_others", "kept_in_other_inputs", "gone_kept")
        done = {name: self._done[name] for name in (*names, "kept_forgotten")}
        return {"values": 0, "new": 0, "gone": 0, "left_out": 0, **self._read, **done}

    def joined(self, feed: Feed) -> list[Callable[[], None]]:
        """What changes in the feed is no matter of an input's."""
        return []

    # A run

    async def work(self, feed: Feed, *, force: bool) -> float | None:
        """Do what is left of the reading before, then read the source and do what it says."""
        feed.trust.require_chain()
        life, key = feed.values.life()[0], feed.key.hex()
        try:
            state, left = await self._in_thread(
                feed, lambda: self._folder.begin(key, life, feed.values.top_seq)
            )
            if left is not None:
                state = await self._do(feed, left)
            if state is not None and not self._read:
                # Of the reading before the start, until there is another one.
                self._read = _figures_of(asdict(state))
            reading = await self._reading(feed, life, state, force=force)
            if reading is not None:
                await self._do(feed, reading)
        except OSError as error:
            raise IntegrationFailed(_disk_problem(self._folder.path, error)) from None
        wait: float = feed.context.jittered(self.settings.every)
        self._held = reading is not None and reading.held
        if reading is not None and reading.held:
            raise IntegrationFailed(self._why_held(reading), wait=wait)
        return wait

    async def _reading(
        self, feed: Feed, life: int, state: InputState | None, *, force: bool
    ) -> Reading | None:
        """Read the source; what it said, on disk, None: that nothing has changed."""
        self._read_mark = self._seen_mark = await self._in_thread(feed, self._mark)
        run = await self._in_thread(feed, self._folder.make_run)
        answer = await self._answer(feed, run, state)
        is_unchanged = answer["outcome"] == "unchanged" and state is not None
        if is_unchanged and state is not None:
            answer = {"left_out": state.left_out, **answer}
        self._read = read = _figures_of(answer)
        held = not force and self._is_too_much(read)
        following = InputState(
            feed=feed.key.hex(),
            life=life,
            top_seq=feed.values.top_seq,
            # While something is held back the source is always read as a whole.
            etag=None if held else answer.get("etag"),
            last_modified=None if held else answer.get("last_modified"),
            values=read["values"],
            left_out=answer.get("left_out") or {},
            read_at=self.context.now(),
        )
        if is_unchanged:
            await self._in_thread(feed, lambda: self._folder.write_state(following))
            await self._in_thread(feed, lambda: self._folder.drop(run))
            return None
        reading = Reading(run=run, state=following, new=read["new"], gone=read["gone"], held=held)
        await self._in_thread(feed, lambda: self._folder.write_down(reading))
        return reading

    async def _answer(self, feed: Feed, run: Path, state: InputState | None) -> dict[str, Any]:
        """What the process says that reads the source."""
        settings = self.settings
        request = {
            "path": None if settings.path is None else str(settings.path),
            "url": settings.url,
            "format": settings.format,
            "column": settings.column,
            "pointer": settings.pointer,
            "max_bytes": settings.max_bytes,
            "max_value_bytes": feed.values.longest,
            "seconds": settings.timeout,
            # Of a reading by other settings or to other values: the reader finds that out itself.
            "etag": None if state is None else state.etag,
            "last_modified": None if state is None else state.last_modified,
            "known": str(self._folder.known),
            "folder": str(run),
            "own": [str(path) for path in self.context.own],
            "max_memory": settings.max_memory,
        }
        try:
            ended = await self.context.commands.run(
                READER,
                seconds=settings.timeout + ENDING_SECONDS,
                given=json.dumps(request).encode(),
                quiet=True,
            )
        except CommandFailed as error:
            raise IntegrationFailed(
                f"what reads the source failed ({error}); see whether the machine has memory and "
                "time for it"
            ) from None
        return _answer_of(ended.output)

    def _is_too_much(self, read: dict[str, int]) -> bool:
        """Whether more is gone than may go by itself: one value of those left always may."""
        values, gone = read["values"], read["gone"]
        if gone == 0 or self.settings.max_shrink >= 1.0:
            return False
        most = self.settings.max_shrink * (values - read["new"] + gone)
        return values == 0 or gone > max(most, math.ceil(self.settings.max_shrink))

    def _why_held(self, reading: Reading) -> str:
        before = reading.state.values - reading.new + reading.gone
        return (
            f"{reading.gone:,} of {before:,} values are gone from the source, more than max_shrink "
            f"allows ({self.settings.max_shrink:.0%}), and nothing is taken back; see whether the "
            f"source is whole; `hyperbloom input run {self.settings.name} --force` takes it so"
        )

    # What a reading asks for

    async def _do(self, feed: Feed, reading: Reading) -> InputState:
        """Put what is new, take back what is gone, and have that known; the state it leaves."""
        turn = self.context.inputs_turn
        await turn.acquire()
        try:
            await self._put(feed, reading.run / "new")
            if not reading.held and reading.gone:
                await self._take_back(feed, reading)
            state = replace(reading.state, top_seq=feed.values.top_seq)
            await self._in_thread(feed, lambda: self._folder.finish(reading, state))
        finally:
            turn.release()
        return state

    async def _put(self, feed: Feed, path: Path) -> None:
        rest = batches(path)
        while batch := await self._next(feed, rest):
            values = await self._in_thread(feed, _Wanted(feed, batch))
            if values:
                self._done["put"] += len((await self._insert(feed, values)).values)
            self._done["kept_forgotten"] += len(batch) - len(values)

    async def _take_back(self, feed: Feed, reading: Reading) -> None:
        if not _is_followed(feed):
            self._done["gone_kept"] += reading.gone
            return
        others = await self._in_thread(feed, lambda: self._others(reading.state))
        rest = batches(reading.run / "gone")
        while batch := await self._next(feed, rest):
            found = await self._in_thread(feed, _OwnAmong(feed, batch, others))
            self._done["kept_in_other_inputs"] += found.listed
            self._done["kept_of_others"] += found.brought_by_others
            for start in range(0, len(found.values), TAKE_BACK_STEP):
                await self._forget(feed, found.values[start : start + TAKE_BACK_STEP])

    async def _forget(self, feed: Feed, values: Sequence[bytes]) -> None:
        """Tombstones first: a value that is forgotten already is not looked at again."""
        identity, longest = feed.trust.identity, feed.values.longest

        def sign() -> dict[bytes, bytes]:
            made = {value: make_tombstone(identity, feed.key, value) for value in values}
            return {value: one for value, one in made.items() if len(one) <= longest}

        tombstones = await self._in_thread(feed, sign)
        self._done["gone_kept"] += len(values) - len(tombstones)
        if tombstones:
            await self._insert(feed, list(tombstones.values()))
            own = feed.context.identity.public_key
            forgetting = feed.forgetting.forget(list(tombstones), brought_by=own)
            await self._to_its_end(Deferred.fromCoroutine(forgetting))
        self._done["taken_back"] += len(tombstones)

    async def _insert(self, feed: Feed, values: Sequence[bytes]) -> Appended:
        try:
            return await self._to_its_end(feed.insert(values))
        except ValueError as error:
            raise IntegrationFailed(f"{error}; raise value_bytes in [limits]") from None

    def _others(self, state: InputState) -> list[Path]:
        """What the other inputs of the feed know. Runs in a thread."""
        names = self.context.input_names - {self.settings.name}
        folders = [InputFolder(_folder_of(self.context.data, name)) for name in sorted(names)]
        return [one.known for one in folders if one.state(state.feed, state.life) is not None]

    # Beside the reactor

    async def _next(self, feed: Feed, rest: Iterator[list[bytes]]) -> list[bytes]:
        empty: list[bytes] = []
        return await self._in_thread(feed, lambda: next(rest, empty))

    def _in_thread(self, feed: Feed, call: Callable[[], T]) -> Deferred[T]:
        return self._to_its_end(feed.context.own_work(call))

    def _to_its_end(self, under_way: Deferred[T]) -> Deferred[T]:
        """What it gives. Who waits here may be cancelled, it is not; `stop` waits for it then.

        What is stored has to be told to the feed, and a thread in the folder cannot be stopped.
        """
        result: Deferred[T] = Deferred()
        over: Deferred[None] = Deferred()
        self._beside = over

        def ended(outcome: Any) -> None:
            if not result.called:
                result.callback(outcome)
            over.callback(None)

        under_way.addBoth(ended)
        return result

    # The file of a source

    def _watch(self) -> None:
        """Look at the file, and run when it has changed and is left alone."""
        feed = self.feed
        if feed is None or self._running is not None:
            self._watch_again()
            return

        def looked(found: Any) -> None:
            was, self._seen_mark = self._seen_mark, found
            if found == was and found != self._read_mark:
                self._read_mark = found
                self._due(0.0)
            self._watch_again()

        self._in_thread(feed, self._mark).addCallback(looked)

    def _watch_again(self) -> None:
        if self._started:
            self._watching.set(self.context.clock.seconds() + WATCH_SECONDS)

    def _mark(self) -> _Mark:
        if self.settings.path is None:
            return None
        try:
            found = os.stat(self.settings.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class _Wanted:
    """Called in a thread: a source's new values, without those that are to stay forgotten.

    What this node took back by its own tombstone is a value again when it comes again. What
    somebody here has forgotten, or another's tombstone, is not for a list to bring back.
    """

    def __init__(self, feed: Feed, values: list[bytes]) -> None:
        self._feed = feed
        self._values = values

    def __call__(self) -> list[bytes]:
        feed, store = self._feed, self._feed.context.store
        forgotten = list(store.forgotten(feed.key, self._values))
        if not forgotten:
            return self._values
        identity = feed.trust.identity
        tombstones = [make_tombstone(identity, feed.key, value) for value in forgotten]
        was_taken_back = store.has(feed.key, tombstones)
        kept = {v for v, ours in zip(forgotten, was_taken_back, strict=True) if not ours}
        return [value for value in self._values if value not in kept]


class _Own:
    """Which of some values this node may take back, and how many of the others there are."""

    def __init__(self, values: list[bytes], listed: int, brought_by_others: int) -> None:
        self.values = values
        self.listed = listed
        self.brought_by_others = brought_by_others


class _OwnAmong:
    """Called in a thread: values that this node brought, and no file of the others lists."""

    def __init__(self, feed: Feed, values: list[bytes], others: Sequence[Path]) -> None:
        self._feed = feed
        self._values = values
        self._others = others

    def __call__(self) -> _Own:
        listed: set[bytes] = set()
        for path in self._others:
            listed |= listed_in(path, self._values)
        values = [value for value in self._values if value not in listed]
        own = self._feed.context.identity.public_key
        origins = self._feed.context.store.origins(self._feed.key, values)
        found = [value for value, origin in zip(values, origins, strict=True) if origin == own]
        others = sum(origin is not None and origin != own for origin in origins)
        return _Own(found, len(listed), others)


def _folder_of(data: Path, name: str) -> Path:
    return data / "inputs" / name


def _is_followed(feed: Feed) -> bool:
    """Whether, by the feed's setting, nodes follow the tombstones of this one."""
    return feed.settings.tombstones == "owner" and feed.trust.is_owned


def _answer_of(output: bytes) -> dict[str, Any]:
    """What the process said; raises `IntegrationFailed` where it says that it failed."""
    try:
        answer = json.loads(output)
        outcome = answer["outcome"]
        if outcome == "failed":
            raise IntegrationFailed(str(answer["problem"]))
        if outcome in ("read", "unchanged"):
            return dict(answer)
    except (ValueError, TypeError, KeyError):
        pass
    raise IntegrationFailed(
        "what reads the source gave no answer; restart the node if it was upgraded while it ran"
    )


def _figures_of(answer: dict[str, Any]) -> dict[str, int]:
    left_out = {str(reason): int(n) for reason, n in (answer.get("left_out") or {}).items()}
    return {
        **{name: int(answer.get(name) or 0) for name in ("values", "new", "gone")},
        "left_out": sum(left_out.values()),
        **{f"left_out_{reason}": number for reason, number in sorted(left_out.items())},
    }


def _disk_problem(folder: Path, error: OSError) -> str:
    why = error.strerror or error
    return f"{error.filename or folder}: {why}; see that the node may write there and has room"
