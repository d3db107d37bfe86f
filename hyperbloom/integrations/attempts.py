"""How runs of one output, input or hook went, and when one that failed is tried again."""

from __future__ import annotations

from collections.abc import Callable

from hyperbloom.integrations.limits import FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS

__all__ = ["Attempts"]


class Attempts:
    """Counts runs; `now` gives seconds since 1970."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.runs = 0
        self.failures = 0
        self.last_success: float | None = None
        self.last_failure: float | None = None
        #: Why the last run failed, one sentence; None: it did not.
        self.problem: str | None = None
        #: Failures since the last success.
        self._in_a_row = 0

    def succeeded(self) -> None:
        """A run is over, and all went well."""
        self.runs += 1
        self.last_success = self._now()
        self.problem = None
        self._in_a_row = 0

    def failed(self, problem: str) -> None:
        """A run is over and did not do what it should; `problem` says why, and what to do."""
        self.runs += 1
        self.failures += 1
        self._in_a_row += 1
        self.last_failure = self._now()
        self.problem = problem

    @property
    def retry_seconds(self) -> float:
        """How long to wait before what failed is tried again."""
        doublings = min(max(self._in_a_row - 1, 0), 32)
        return min(FIRST_RETRY_SECONDS * 2.0**doublings, LAST_RETRY_SECONDS)
