"""What the node does for requests that take long, and how far it is: for who waits for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hyperbloom.api.schemas.answers import WorkForm

__all__ = ["Work"]


class Work:
    """The work under way; there is no more of it than there are requests. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begun: dict[int, tuple[float, WorkForm]] = {}
        self._last = 0

    @contextmanager
    def of(self, kind: str, unit: str) -> Iterator[Callable[[int, int], None]]:
        """Work that ends with the block; what is yielded tells how far it is, in any thread."""
        form = WorkForm(kind=kind, done=0, total=0, unit=unit, seconds=0.0)
        self._last += 1
        number = self._last
        self._begun[number] = (self._clock(), form)

        def tell(done: int, total: int) -> None:
            form["done"], form["total"] = done, total

        try:
            yield tell
        finally:
            del self._begun[number]

    def forms(self) -> list[WorkForm]:
        """All of it, the oldest first."""
        now = self._clock()
        return [{**form, "seconds": round(now - begun, 3)} for begun, form in self._begun.values()]
