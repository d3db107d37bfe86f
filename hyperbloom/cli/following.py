"""Asking the node how far it is, while it does what it was asked for on another connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hyperbloom.cli.app import App
    from hyperbloom.cli.output import Progress
    from hyperbloom.client.client import Client

__all__ = ["followed"]

#: How often the node is asked, and how long it may take to answer.
SECONDS_BETWEEN = 0.3
ASKING_SECONDS = 10.0


@contextmanager
def followed(app: App, progress: Progress, look: Callable[[Client], None]) -> Iterator[None]:
    """Calls `look` in a thread again and again during the block, if somebody sees what it shows.

    What goes wrong there ends the looking, and nothing else: the block says it itself.
    """
    if not progress.is_shown:
        yield
        return
    over = threading.Event()

    def follow() -> None:
        from hyperbloom.errors import HyperbloomError

        with app.client(ASKING_SECONDS) as client, suppress(HyperbloomError):
            while not over.wait(SECONDS_BETWEEN):
                look(client)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()
