"""A node with a feed and a hook, in this process: the store and the feed are real."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pumped_reactor import CEILING, PumpedReactor
from twisted.internet.defer import Deferred

from hyperbloom.integrations.commands import CommandFailed, Commands, Ended
from hyperbloom.integrations.hooks import Hook
from hyperbloom.integrations.integration import IntegrationContext
from hyperbloom.integrations.service import KINDS
from hyperbloom.integrations.settings import HookSettings

sys.path.insert(0, str(Path(__file__).parent.parent / "replication"))

from players import fired
from sim import Network, SimNode


@dataclass
class ToldCommand:
    """A program that was started, and ends when the test says so."""

    arguments: tuple[str, ...]
    given: bytes
    environment: dict[str, str]
    seconds: float
    ended: Deferred[Ended]

    @property
    def values(self) -> list[bytes]:
        return [bytes.fromhex(line["value"]) for line in self.lines]

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.given.splitlines()]

    def end(self, problem: str | None = None, output: bytes = b"") -> None:
        if problem is None:
            self.ended.callback(Ended(output=output))
        else:
            self.ended.errback(CommandFailed(problem))


class CommandsDouble:
    """Programs that the test ends."""

    def __init__(self) -> None:
        self.begun: list[ToldCommand] = []

    def run(
        self,
        arguments: Sequence[str],
        *,
        seconds: float,
        given: bytes = b"",
        environment: dict[str, str] | None = None,
        quiet: bool = False,
    ) -> Deferred[Ended]:
        ended: Deferred[Ended] = Deferred()
        one = ToldCommand(tuple(arguments), given, environment or {}, seconds, ended)
        self.begun.append(one)
        return ended

    @property
    def last(self) -> ToldCommand:
        return self.begun[-1]


class HookScene:
    """A node in memory, its own feed, and one hook at a time."""

    def __init__(self, folder: Path, commands: Any = None) -> None:
        self.network = Network(folder)
        self.node: SimNode = self.network.add("node")
        self.key = self.node.key
        self.commands = commands or CommandsDouble()
        self.hook: Hook = cast("Hook", None)

    @property
    def clock(self) -> Any:
        return self.network.clock

    def now(self) -> float:
        return self.network.now()

    @property
    def feed(self) -> Any:
        return self.node.feed(self.key)

    def start(self, **settings: Any) -> Hook:
        """A hook with these settings; the one that was there is stopped."""
        if self.hook is not None:
            self.hook.stop()
        given = HookSettings(
            **{"name": "bell", "command": ("bell",), "feed": self.key.hex()} | settings
        )
        context = IntegrationContext(
            node=self.node.node,
            commands=cast("Commands", self.commands),
            data=self.network.folder,
            store_path=self.network.folder / "node",
            clock=self.clock,
            now=self.now,
        )
        self.hook = cast("Hook", KINDS[HookSettings](given, context))
        self.hook.start()
        self.clock.advance(0)
        return self.hook

    def restart(self, **settings: Any) -> Hook:
        """The node goes without a word, and begins anew with what is on disk."""
        self.hook = cast("Hook", None)
        self.node = self.network.restart("node")
        return self.start(**settings)

    def put(self, *values: bytes) -> None:
        fired(self.feed.insert(list(values)))
        self.clock.advance(0)

    def forget(self, *values: bytes) -> None:
        fired(Deferred.fromCoroutine(self.feed.forgetting.forget(list(values))))

    def wait(self, seconds: float) -> None:
        self.network.run(seconds, step=0.25)

    def told(self) -> list[list[bytes]]:
        """The values of each batch that was begun."""
        return [one.values for one in self.commands.begun]

    def close(self) -> None:
        if self.hook is not None:
            self.hook.stop()
        self.network.close()


class RealHookScene(HookScene):
    """The same with real programs, in threads that answer to a pumped reactor."""

    def __init__(self, folder: Path) -> None:
        self.reactor = PumpedReactor()
        commands = Commands(self.reactor)
        commands.start()
        super().__init__(folder, commands)

    def now(self) -> float:
        return time.time()

    def until(self, reached: Callable[[], object]) -> None:
        """Let programs run and time pass until this is so."""
        turns = 0
        while not reached():
            assert turns * 0.02 < CEILING, f"it did not come: {self.hook.status()}"
            self.reactor.turn(0.02)
            self.clock.advance(0.02)
            turns += 1

    def close(self) -> None:
        super().close()
        self.reactor.wait(self.commands.stop())
        self.reactor.stop()
