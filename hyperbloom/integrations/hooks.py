"""A hook of a running node: a program or a web server is told of each new value, at least once.

A hook has no queue. It keeps a place in the arrival log of its feed, and reads from there a batch
at a time. Before a batch is told, the store keeps where it ends; when whoever is told has said that
it was taken, the store keeps that the hook has come so far. So a batch that was under way when the
node ended is told again, under the same id and with the same values, and nothing is left out.
"""

from __future__ import annotations

import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from twisted.logger import Logger

from hyperbloom.integrations.commands import CommandFailed
from hyperbloom.integrations.integration import Integration, IntegrationContext, IntegrationFailed
from hyperbloom.integrations.limits import HOOK_BATCH_BYTES
from hyperbloom.integrations.settings import HookSettings
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.reading.arrivals import arrival_text
from hyperbloom.store import NoSuchFeed, PutMeta
from hyperbloom.store.records import LogRecord

__all__ = ["Batch", "CommandHook", "Hook"]

_ID_DIGITS = 16

log = Logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Values that are told together: those with arrival numbers `first` to `last`.

    `id` is the same however often they are told. `lines` are JSON, one value a line. `feed` is what
    the feed is called where its key must not stand; `life` is another number when it was left and
    joined anew.
    """

    id: str
    feed: str
    life: int
    first: int
    last: int
    count: int
    lines: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """How far a hook has come: to arrival number `seq` in one life of a feed's log.

    `until`: the end of a batch that was begun and of which nobody knows yet that it was taken.
    """

    feed_key: bytes
    life: int
    seq: int
    until: int | None = None

    def as_bytes(self) -> bytes:
        """As the store keeps it."""
        form = {"feed": self.feed_key.hex(), "life": self.life, "seq": self.seq}
        return json.dumps(form if self.until is None else form | {"until": self.until}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> _Place:
        """The inverse of `as_bytes`."""
        form = json.loads(data)
        key = bytes.fromhex(form["feed"])
        return cls(feed_key=key, life=form["life"], seq=form["seq"], until=form.get("until"))


class Hook(Integration[HookSettings]):
    """What hooks of both kinds have in common; a kind says how a batch is told."""

    kind = "hook"

    def __init__(self, settings: HookSettings, context: IntegrationContext) -> None:
        super().__init__(settings, context)
        self._place: _Place | None = None
        #: The last arrival when the feed was found: behind it begins what is new.
        self._top_at_first = 0
        #: When the last batch was begun, in seconds of the clock.
        self._begun: float | None = None
        self._told = self._batches = self._skipped = 0

    @abstractmethod
    async def tell(self, feed: Feed, batch: Batch) -> None:
        """Tell a batch; returns when it was taken. Raises `IntegrationFailed` when it was not."""

    def figures(self) -> dict[str, int]:
        """`values_waiting` also counts values that were forgotten since they came."""
        waiting, feed, place = 0, self.feed, self._place
        if feed is not None and place is not None and place.feed_key == feed.key:
            waiting = max(0, feed.values.top_seq - place.seq)
        return {
            "values_waiting": waiting,
            "values_told": self._told,
            "batches_told": self._batches,
            "values_skipped": self._skipped,
        }

    @property
    def rest(self) -> float:
        """Seconds until the next batch may begin."""
        if self._begun is None:
            return 0.0
        ready: float = self._begun + self.settings.delay
        return max(0.0, ready - float(self.context.clock.seconds()))

    def joined(self, feed: Feed) -> list[Callable[[], None]]:
        """A hook that begins now begins behind what is here now."""
        self._top_at_first = feed.values.top_seq
        return super().joined(feed)

    def wake(self, seconds: float = 0.0) -> None:
        """Values have come: the first ones after a silence are told at once."""
        super().wake(max(seconds, self.rest))

    async def work(self, feed: Feed, *, force: bool) -> float | None:
        """Tell one batch; with `force` leave out the one that was begun and not taken."""
        begun = self.context.clock.seconds()
        try:
            place = await self._find_place(feed)
            was_begun = place.until is not None
            batch = await self._next_batch(feed, place)
            if batch is not None and force and was_begun:
                self._leave_out(batch)
            elif batch is not None:
                self._begun = begun
                await self._tell(feed, batch)
            if self._place is not None and batch is not None:
                await self._keep(feed, replace(self._place, seq=batch.last, until=None))
        except NoSuchFeed:
            # It is being left; the next look will find that.
            return None
        return self.rest if self._is_behind(feed) else None

    def _is_behind(self, feed: Feed) -> bool:
        return self._place is not None and self._place.seq < feed.values.top_seq

    async def _find_place(self, feed: Feed) -> _Place:
        life, _ = feed.values.life()
        if self._place is None:
            kept = feed.context.store.get_meta(self._meta_name)
            self._place = None if kept is None else _Place.from_bytes(kept)
        place = self._place
        if place is None or (place.feed_key, place.life) != (feed.key, life):
            first = self._top_at_first if self.settings.since == "now" else 0
            place = _Place(feed_key=feed.key, life=life, seq=first)
            await self._keep(feed, place)
        return place

    @property
    def _meta_name(self) -> str:
        return f"hook.{self.settings.name}"

    async def _keep(self, feed: Feed, place: _Place) -> None:
        await feed.context.written(PutMeta(name=self._meta_name, value=place.as_bytes()))
        self._place = place

    async def _next_batch(self, feed: Feed, place: _Place) -> Batch | None:
        """The one that was begun, or else the next one; None: nothing is to be told."""
        top = feed.values.top_seq if place.until is None else place.until
        if top <= place.seq:
            return None
        piece = await feed.values.log_after(
            place.seq, limit=self.settings.batch, max_bytes=HOOK_BATCH_BYTES
        )
        records = [
            record for record in piece.records if place.until is None or record.seq <= place.until
        ]
        if not records:
            # All of these were forgotten.
            await self._keep(feed, replace(place, seq=top, until=None))
            return None
        last = records[-1].seq
        if last != place.until:
            await self._keep(feed, replace(place, until=last))
        find = self.context.node.names.get
        names = {origin: find(origin) for origin in {record.origin for record in records}}
        return Batch(
            id=self._batch_id(feed, place, records[-1]),
            feed=feed.log_name,
            life=place.life,
            first=place.seq + 1,
            last=last,
            count=len(records),
            lines=await feed.context.own_work(lambda: _lines(records, names)),
        )

    def _batch_id(self, feed: Feed, place: _Place, last: LogRecord) -> str:
        # In a store that was restored other values have these numbers, and came at another time.
        whose = [feed.context.identity.public_key, feed.key, b"%d" % last.received_at]
        digest = hashlib.sha256(b"".join([*whose, self.settings.name.encode()])).hexdigest()
        return f"{digest[:_ID_DIGITS]}-{place.life}-{place.seq + 1}-{last.seq}"

    async def _tell(self, feed: Feed, batch: Batch) -> None:
        try:
            await self.tell(feed, batch)
        except IntegrationFailed as error:
            raise IntegrationFailed(
                f"{error}; the values with arrival numbers {batch.first} to {batch.last} and all "
                "behind them wait; to leave these out, `hyperbloom hook run "
                f"{self.settings.name} --force`",
                wait=error.wait,
            ) from None
        self._told += batch.count
        self._batches += 1

    def _leave_out(self, batch: Batch) -> None:
        self._skipped += batch.count
        log.warn(
            "The hook {name} was not told of {count} values: those with arrival numbers {first} to "
            "{last} were left out by force",
            name=self.settings.name,
            count=batch.count,
            first=batch.first,
            last=batch.last,
        )


class CommandHook(Hook):
    """A hook that runs a program, which reads a batch from its standard input."""

    @property
    def target(self) -> str:
        """The program, without its arguments."""
        return self.settings.command[0]

    async def tell(self, feed: Feed, batch: Batch) -> None:
        """Run the program; the batch is taken when that has ended with 0."""
        environment = {
            "HYPERBLOOM_HOOK": self.settings.name,
            "HYPERBLOOM_FEED": batch.feed,
            "HYPERBLOOM_LIFE": str(batch.life),
            "HYPERBLOOM_BATCH": batch.id,
        }
        try:
            await self.context.commands.run(
                self.settings.command,
                seconds=self.settings.timeout,
                given=batch.lines,
                environment=environment,
            )
        except CommandFailed as error:
            raise IntegrationFailed(str(error)) from None


def _lines(records: Sequence[LogRecord], names: Mapping[bytes, str | None]) -> bytes:
    text = "".join(f"{arrival_text(record, names[record.origin])}\n" for record in records)
    return text.encode("ascii")
