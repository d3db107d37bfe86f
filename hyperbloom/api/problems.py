"""What went wrong, as an answer says it: RFC 9457 problem details with stable types.

The kinds stand in `hyperbloom.errors`, with the status and the exit code of each; an error of the
node that says its kind becomes a `Problem` of that kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = [
    "PROBLEM_MEDIA_TYPE",
    "Problem",
    "ProblemKind",
    "bad_request",
    "problem_of",
    "value_errors_as_problems",
]

PROBLEM_MEDIA_TYPE = "application/problem+json"

#: What programs know the kinds by: those of `Problem.kind`.
ProblemKind = ErrorKind


class Problem(HyperbloomError):
    """Raised by endpoints, and by clients for what a node answers.

    `detail` is one sentence for a person.
    """

    kind: ErrorKind

    def __init__(self, kind: ErrorKind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail

    def as_json(self) -> dict[str, object]:
        """The members of RFC 9457, section 3.1."""
        return {
            "type": self.kind.type,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }


def bad_request(detail: str) -> Problem:
    """The problem of a malformed request."""
    return Problem(ErrorKind.BAD_REQUEST, detail)


@contextmanager
def value_errors_as_problems() -> Iterator[None]:
    """A plain `ValueError` is a mistake of who asked, and becomes a `Problem` BAD_REQUEST."""
    try:
        yield
    except HyperbloomError:
        raise
    except ValueError as error:
        raise bad_request(str(error)) from None


def problem_of(error: BaseException) -> Problem | None:
    """The problem that an error of the node is to the client; None for an unexpected one."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, HyperbloomError) and error.kind is not None:
        return Problem(error.kind, str(error))
    if type(error) is LookupError:  # its subclasses are mistakes in the code
        return Problem(ErrorKind.UNKNOWN_FEED, str(error))
    if isinstance(error, TimeoutError):
        return Problem(ErrorKind.TIMEOUT, str(error))
    return None
