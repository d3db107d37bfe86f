"""Outputs: files that are kept as a feed is, and commands that are run when they have changed.

A process of its own writes the new file beside the one that is there (`outputs/rendering.py`), for
it takes a second for a million values. Where the two differ, the node renames the new one, so a
reader has one of them whole. Then the command runs; while it does, the file does not change.

For which file the command has ended well is noted in the store, by a digest of path, command and
content. A file without its note has its command run: after a failure, and after the node was killed
between the two. Before a file with the noted content comes into place again the note is removed,
for in between there was another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Final

from hyperbloom.integrations.commands import CommandFailed
from hyperbloom.integrations.integration import (
    Integration,
    IntegrationContext,
    IntegrationFailed,
    StillFailing,
)
from hyperbloom.integrations.limits import GATHER_SECONDS, RENDERING_SECONDS, RESTS
from hyperbloom.integrations.settings import OutputSettings
from hyperbloom.integrations.status import Kind
from hyperbloom.outputs.new_files import FileSign, new_path, put_in_place, sign_of
from hyperbloom.outputs.rendering import Answer, Request
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feeds import UnknownFeed
from hyperbloom.store import PutMeta
from hyperbloom.value_ranges import narrowed

__all__ = ["RENDERING", "Output"]

RENDERING: Final = (sys.executable, "-P", "-m", "hyperbloom.outputs.rendering")
"""The process that writes a file."""
#: numpy's library of linear algebra, of which nothing is used, starts no threads.
_ENVIRONMENT: Final = {"OPENBLAS_NUM_THREADS": "1"}
_DIGIT_BYTES: Final = 8

_Signs = tuple[FileSign | None, FileSign | None]


class Output(Integration[OutputSettings]):
    """One file and its command."""

    kind: ClassVar[Kind] = "output"

    def __init__(self, settings: OutputSettings, context: IntegrationContext) -> None:
        super().__init__(settings, context)
        self._allow_feed: Feed | None = None
        self._leave_allow_feed: Callable[[], None] | None = None
        #: Whether the file may not be what it should be.
        self._stale = True
        self._writing_failed = False
        #: What the file was when it was written last.
        self._answer: Answer | None = None
        #: Those of the allow list, before it was read, and of the file when it was left.
        self._signs: _Signs | None = None
        #: When the file may be written again, and the command run, in seconds of the clock.
        self._write_at = self._command_at = 0.0
        #: Why the command failed, while it has not ended well.
        self._command_problem: str | None = None
        self._renders = self._changes = self._commands = self._command_failures = 0

    @property
    def target(self) -> str:
        """The file."""
        return str(self.settings.path)

    def figures(self) -> dict[str, int]:
        """What the file holds, and what was done since the start of the node."""
        found = {}
        if self._answer is not None:
            left_out = self._answer.left_out
            found["entries"] = self._answer.entries
            found["bytes"] = self._answer.bytes
            found["left_out"] = sum(left_out.values())
            for reason, count in sorted(left_out.items()):
                # A part of the names of metrics.
                found["left_out_" + re.sub(r"[^a-z0-9]+", "_", reason.lower())] = count
        return found | {
            "renders": self._renders,
            "changes": self._changes,
            "commands": self._commands,
            "command_failures": self._command_failures,
        }

    @property
    def rest(self) -> float:
        """What comes thick is gathered."""
        left: float = self._write_at - self.context.clock.seconds()
        return max(GATHER_SECONDS, left)

    @property
    def patient(self) -> bool:
        """A file that can be written is kept as the feed is, though the command fails."""
        return self._writing_failed

    async def work(self, feed: Feed, *, force: bool) -> float | None:
        """Write the file if it may be another one, and run the command if it has to be told."""
        if self._stale or force:
            await self._write(feed)
        return await self._tell(feed, force=force)

    # What it is told of

    def joined(self, feed: Feed) -> list[Callable[[], None]]:
        """Any change of the feed, and of that of the allow list."""
        self._stale = True
        self._find_allow_feed()
        return [feed.values.watch(self._changed), self._forget_allow_feed]

    def look(self) -> None:
        """See whether the allow list is another one, or the file not as it was left."""
        self._find_allow_feed()
        left = self._signs
        if left is None:
            return

        def compare(found: _Signs) -> None:
            # Unless a run has begun meanwhile.
            if self._signs is left and found != left:
                self._changed()

        self.context.commands.in_thread(self._find_signs).addCallback(compare)

    def _changed(self) -> None:
        self._stale = True
        self.wake(self.rest)

    def _find_allow_feed(self) -> None:
        """Follow the feed of the allow list, which may come and go."""
        name = self.settings.allow_feed
        if name is None:
            return
        try:
            found: Feed | None = self.context.node.resolve(name)
        except UnknownFeed:
            found = None
        if found is not self._allow_feed:
            self._forget_allow_feed()
            if found is not None:
                self._allow_feed = found
                self._leave_allow_feed = found.values.watch(self._changed)
            self._changed()

    def _forget_allow_feed(self) -> None:
        if self._leave_allow_feed is not None:
            self._leave_allow_feed()
        self._allow_feed = self._leave_allow_feed = None

    def _find_signs(self) -> _Signs:
        return self._allow_sign(), sign_of(self.settings.path)

    def _allow_sign(self) -> FileSign | None:
        allow = self.settings.allow
        return None if allow is None else sign_of(allow)

    # The file

    async def _write(self, feed: Feed) -> None:
        """Have the file be as the feed is; raises `IntegrationFailed`, `NotWritten`, `StoreError`.

        The file that is there stays as it is until a new one is whole.
        """
        begun = self.context.clock.seconds()
        in_thread = self.context.commands.in_thread
        self._stale, self._signs, self._writing_failed = False, None, True
        try:
            allow_sign = await in_thread(self._allow_sign)
            new, answer = await self._render(feed)
            if not answer.same:
                await self._replace(feed, new, answer)
        except BaseException:
            self._stale = True
            raise
        self._writing_failed = False
        self._answer = answer
        self._signs = allow_sign, await in_thread(lambda: sign_of(self.settings.path))
        ended = self.context.clock.seconds()
        self._write_at = ended + RESTS * (ended - begun)

    async def _render(self, feed: Feed) -> tuple[Path, Answer]:
        """Have the new file written; where, and what it is."""
        settings, commands = self.settings, self.context.commands
        if settings.allow_feed is not None and self._allow_feed is None:
            raise IntegrationFailed(
                f"the feed {settings.allow_feed} of `allow_feed` is not here; join it, or correct "
                "`allow_feed`"
            )
        start, end = narrowed(settings.start, settings.end, settings.prefix)
        new = new_path(settings.path, feed.context.random_bytes(_DIGIT_BYTES).hex())
        request = Request(
            store=str(self.context.store_path),
            feed=feed.key.hex(),
            start=start.hex(),
            end=None if end is None else end.hex(),
            format=settings.format,
            set_name=settings.set_name,
            allow=None if settings.allow is None else str(settings.allow),
            allow_feed=None if self._allow_feed is None else self._allow_feed.key.hex(),
            path=str(settings.path),
            new=str(new),
            mode=settings.mode,
            parent=os.getpid(),
        )
        self._renders += 1
        try:
            ended = await commands.run(
                RENDERING,
                seconds=RENDERING_SECONDS,
                given=json.dumps(asdict(request)).encode(),
                environment=_ENVIRONMENT,
                quiet=True,
                for_file=True,
            )
        except CommandFailed as error:
            # It may have died while it read, and keep pages of the store from being used anew.
            await commands.in_thread(feed.context.store.drop_dead_readers)
            raise IntegrationFailed(
                f"the process that writes the file failed ({error}); see that the machine has "
                "memory, and the system's log"
            ) from None
        found = json.loads(ended.output)
        if "problem" in found:
            raise IntegrationFailed(found["problem"])
        return new, Answer(**found)

    async def _replace(self, feed: Feed, new: Path, answer: Answer) -> None:
        if self._told(feed) == self._note(answer):
            await self._tell_store(feed, None)
        path = self.settings.path
        await self.context.commands.in_thread(lambda: put_in_place(new, path))
        self._changes += 1

    # The command

    async def _tell(self, feed: Feed, *, force: bool) -> float | None:
        """Run the command if it has not ended well for the file; the seconds until it may run."""
        answer = self._answer
        if not self.settings.command or answer is None:
            return None
        note = self._note(answer)
        if self._told(feed) == note:
            if not force:
                return None
            await self._tell_store(feed, None)
        wait: float = self._command_at - self.context.clock.seconds()
        if wait > 0 and not force:
            if self._command_problem is not None:
                raise StillFailing(self._command_problem, wait)
            return wait
        await self._run_command(feed)
        await self._tell_store(feed, note)
        return None

    async def _run_command(self, feed: Feed) -> None:
        settings, commands = self.settings, self.context.commands
        self._command_at = self.context.clock.seconds() + settings.delay
        self._commands += 1
        problem = None
        try:
            await commands.run(
                settings.command,
                seconds=settings.timeout,
                environment={
                    "HYPERBLOOM_OUTPUT": settings.name,
                    "HYPERBLOOM_PATH": str(settings.path),
                    "HYPERBLOOM_FEED": feed.log_name,
                },
            )
        except CommandFailed as error:
            self._command_failures += 1
            problem = (
                f"the file is up to date, but its command failed ({error}); run it by hand as the "
                "node's user, and correct `command`"
            )
        self._command_problem = problem
        if self._signs is not None:
            # What a command does to the file is its own business.
            self._signs = self._signs[0], await commands.in_thread(lambda: sign_of(settings.path))
        if problem is not None:
            raise IntegrationFailed(problem)

    def _note(self, answer: Answer) -> bytes:
        settings = self.settings
        said = json.dumps([str(settings.path), settings.command, answer.digest])
        return hashlib.blake2b(said.encode(), digest_size=32).digest()

    @property
    def _note_name(self) -> str:
        return f"output.{self.settings.name}"

    def _told(self, feed: Feed) -> bytes | None:
        """For which file the command has ended well."""
        return feed.context.store.get_meta(self._note_name)

    async def _tell_store(self, feed: Feed, note: bytes | None) -> None:
        await feed.context.written(PutMeta(name=self._note_name, value=note))
