"""Forgetting values of a feed, in steps that leave room for everything else.

What is to be forgotten is chosen by a `Selection`: a list of values, a range in byte order, or all
that one peer brought. A step reads one slice in a thread and hands its values to the writer, one
transaction; it says where the next one begins. Whoever asks goes on step by step, and one who stops
in between has forgotten what was done until then and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.limits import SLICE_BYTES
from hyperbloom.store import ForgetValues, RestoreValues
from hyperbloom.store.limits import FORGET_STEP
from hyperbloom.store.records import (
    Appended,
    Forgotten,
    ForgottenFigures,
    OriginSlice,
    RangeSlice,
)
from hyperbloom.store.values.forgotten import BroughtLater, DropForgottenHashes

__all__ = ["Forgetting", "Selection", "Step"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Some of a feed's values: `values` if given, else what `origin` brought, else a range."""

    values: tuple[bytes, ...] | None = None
    origin: bytes | None = None
    start: bytes = b""
    end: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step forgot: values, their bytes (`size`), and values that were not here.

    `next` is the position of the next step, None when all is done.
    A position is a value for a range and a number of the log for what a peer brought.
    """

    count: int
    size: int
    absent: int
    next: bytes | int | None


class Forgetting:
    """What the feed of a key forgets, and what it remembers of that.

    `shrunk` is told how many values of how many bytes are gone, `restored` which are back.
    """

    def __init__(
        self,
        key: bytes,
        context: FeedContext,
        *,
        shrunk: Callable[[int, int], None],
        restored: Callable[[Appended], None],
    ) -> None:
        self._key = key
        self._context = context
        self._store = context.store
        self._shrunk = shrunk
        self._restored = restored
        #: Forgotten values kept whole, which our filters hold.
        self.kept = self.figures().count

    def figures(self) -> ForgottenFigures:
        """How much is remembered, as it stands on disk."""
        return self._store.forgotten_figures(self._key)

    async def step(
        self,
        selection: Selection,
        position: bytes | int | None,
        *,
        erase: bool = False,
        dry_run: bool = False,
    ) -> Step:
        """Forget the next values of a selection, or with `dry_run` count them.

        `position` is None at first. Values of a list are kept from coming though they are not here.
        Raises `ValueError` for a list of more than `FORGET_STEP`, `StoreError`.
        """
        values, following = await self._next(selection, position, forgotten=False)
        is_list = selection.values is not None
        if dry_run:
            return await self._counted(values, following)
        done = await self.forget(values, erase=erase, absent=is_list)
        return Step(count=done.count, size=done.bytes, absent=done.absent, next=following)

    async def undo_step(
        self, selection: Selection, position: bytes | int | None, *, dry_run: bool = False
    ) -> Step:
        """Bring the next forgotten values of a selection back, or with `dry_run` count them.

        Of a list also those of which only the hash is kept may come again.
        """
        values, following = await self._next(selection, position, forgotten=True)
        if dry_run:
            size = sum(map(len, values))
            return Step(count=len(values), size=size, absent=0, next=following)
        back = await self.restore(values)
        size = sum(map(len, back.values))
        return Step(count=len(back.values), size=size, absent=0, next=following)

    async def _counted(self, values: Sequence[bytes], following: bytes | int | None) -> Step:
        there = await self._context.own_work(lambda: self._store.has(self._key, values))
        here = [value for value, is_here in zip(values, there, strict=True) if is_here]
        return Step(
            count=len(here),
            size=sum(map(len, here)),
            absent=len(values) - len(here),
            next=following,
        )

    async def _next(
        self, selection: Selection, position: bytes | int | None, *, forgotten: bool
    ) -> tuple[Sequence[bytes], bytes | int | None]:
        if selection.values is not None:
            return selection.values, None
        key, own_work = self._key, self._context.own_work
        origin = selection.origin
        if origin is not None:
            after = position if isinstance(position, int) else 0

            def read_log() -> OriginSlice:
                return self._store.origin_slice(
                    key,
                    origin,
                    after,
                    limit=FORGET_STEP,
                    max_bytes=SLICE_BYTES,
                    forgotten=forgotten,
                )

            found = await own_work(read_log)
            return [record.value for record in found.records], found.next_seq
        start = position if isinstance(position, bytes) else selection.start
        read = self._store.forgotten_slice if forgotten else self._store.range_slice

        def read_range() -> RangeSlice:
            return read(key, start, selection.end, limit=FORGET_STEP, max_bytes=SLICE_BYTES)

        piece = await own_work(read_range)
        return piece.values, piece.next_start

    async def forget(
        self,
        values: Sequence[bytes],
        *,
        erase: bool = False,
        absent: bool = False,
        brought_by: bytes | None = None,
        spare: BroughtLater | None = None,
    ) -> Forgotten:
        """Forget at most `FORGET_STEP` values; see `hyperbloom.store.ForgetValues`.

        Raises `ValueError` for more of them, `StoreError`.
        """
        op = ForgetValues(
            self._key,
            values,
            erase=erase,
            absent=absent,
            brought_by=brought_by,
            spare=spare,
            at=int(self._context.now() * 1_000_000),
        )
        done = cast("Forgotten", await self._context.written(op))
        self._shrunk(done.count, done.bytes)
        self.kept = self.figures().count
        return done

    async def restore(self, values: Sequence[bytes]) -> Appended:
        """Bring forgotten values back; see `hyperbloom.store.RestoreValues`.

        Those of which only the hash is kept may come again. Raises `StoreError`.
        """
        op = RestoreValues(self._key, values)
        back = cast("Appended", await self._context.written(op))
        self.kept = self.figures().count
        self._restored(back)
        return back

    async def drop_hashes(self) -> None:
        """Let all values come again of which only the hash is kept. Raises `StoreError`."""
        await self._context.written(DropForgottenHashes(self._key))
