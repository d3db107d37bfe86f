"""A process that reads one source once: a request on standard input, an answer on standard output.

    python -P -m hyperbloom.inputs.reading

Both are JSON; the answer is one line, and the exit code 0 whatever became of the source. In a
process of its own a source takes no time of the reactor's, and the memory goes with the process.

A token goes with what was read: it says by which settings, of which bytes, and to which known
values it led. Where all three are the same again there is nothing to do; a token that is out of
date costs a reading, and never hides a change.
"""

from __future__ import annotations

import hashlib
import json
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from hyperbloom.errors import HyperbloomError
from hyperbloom.inputs.comparing import compare
from hyperbloom.inputs.formats import parser
from hyperbloom.inputs.formats.parsing import LeftOut, sound_values
from hyperbloom.inputs.limits import MAX_VALUE_BYTES
from hyperbloom.inputs.sources import (
    FileChanged,
    Validators,
    chunks_of,
    digest_of,
    fetch,
    open_file,
)

__all__ = ["Request", "answer_to", "main"]

_CHUNK = 1 << 20
_TOKEN = re.compile(r"1 ([0-9a-f]{64}) ([0-9a-f]{64}) ?(.*)")
_ATTEMPTS = 3
#: Characters of a sentence, which may hold a setting of any length.
_MAX_SENTENCE = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be read, and with what it is compared.

    Either ``path`` or ``url`` is given. ``seconds``: for all of it. ``etag``, ``last_modified``:
    those of the last answer, None for none. ``known``: the values of an earlier reading, each
    with LF behind it; the file need not be there. ``folder``: an empty one for what is written.
    ``own``: files and folders of the node, which no ``path`` may lead to. ``max_memory``: bytes of
    this process, None for no bound.
    """

    path: str | None = None
    url: str | None = None
    format: str = "lines"
    column: str | None = None
    pointer: str | None = None
    max_bytes: int
    max_value_bytes: int = MAX_VALUE_BYTES
    seconds: float
    etag: str | None = None
    last_modified: str | None = None
    known: str
    folder: str
    own: Sequence[str] = ()
    max_memory: int | None = None

    def settings(self) -> bytes:
        """What decides, beside its bytes, on the values of a source."""
        return json.dumps(
            [self.path, self.url, self.format, self.column, self.pointer, self.max_value_bytes]
        ).encode()


def answer_to(request: Request, *, now: float) -> dict[str, Any]:
    """What becomes of a source, as JSON has it (see docs/inputs.md).

    `now` is the moment on `time.monotonic` at which the request's seconds begin.
    """
    try:
        return _Reading(request, now).answer()
    except HyperbloomError as error:
        return _failed(str(error))
    except MemoryError:
        return _failed(_no_memory(request.max_memory))
    except OSError as error:
        return _failed(
            f"the source or the data folder cannot be used: {error.strerror}; make room, or mend it"
        )


def _failed(problem: str) -> dict[str, Any]:
    sentence = problem.encode("ascii", "backslashreplace").decode()
    return {"outcome": "failed", "problem": sentence[:_MAX_SENTENCE]}


class _Reading:
    """One reading of one source."""

    def __init__(self, request: Request, now: float) -> None:
        self._request = request
        self._until = now + request.seconds
        self._known = Path(request.known)
        self._parse = parser(request.format, request.column, request.pointer)
        self._is_first = not self._known.exists()
        self._state, self._count = ("", 0) if self._is_first else self._state_of(self._known)
        token = _TOKEN.fullmatch(request.etag or "")
        # Of a reading by other settings, or that led to other values, nothing can be said.
        self._holds = token is not None and token[1] == self._state
        self._digest = token[2] if token and self._holds else None
        self._etag = (token[3] or None) if token and self._holds else None

    def answer(self) -> dict[str, Any]:
        request = self._request
        if request.url is None:
            return self._of_file(request.path or "")
        validators = Validators(
            etag=self._etag, last_modified=request.last_modified if self._holds else None
        )
        fetched = fetch(
            request.url,
            Path(request.folder),
            max_bytes=request.max_bytes,
            seconds=max(self._until - time.monotonic(), 0.001),
            known=validators,
        )
        if fetched.page is None:
            return self._unchanged(self._count, self._digest or "", validators)
        with fetched.page as page:
            return self._of(page, fetched.validators)

    def _of_file(self, path: str) -> dict[str, Any]:
        """A file that changes while it is read is read again."""
        for attempt in range(1, _ATTEMPTS + 1):
            with open_file(path, self._request.own, self._request.max_bytes) as file:
                try:
                    return self._of(file, Validators())
                except FileChanged:
                    if attempt == _ATTEMPTS:
                        raise
        raise AssertionError("the last attempt answers or raises")

    def _of(self, file: IO[bytes], validators: Validators) -> dict[str, Any]:
        request = self._request
        digest = digest_of(file, request.max_bytes)
        if digest == self._digest:
            return self._unchanged(self._count, digest, validators)
        left_out: LeftOut = Counter()
        chunks = chunks_of(file, digest, self._until)
        values = sound_values(self._parse(chunks, left_out), left_out, request.max_value_bytes)
        found = compare(values, self._known, Path(request.folder))
        if not (found.new or found.gone or self._is_first):
            return self._unchanged(found.values, digest, validators)
        state, _ = self._state_of(Path(request.folder, "next"))
        return {
            "outcome": "read",
            "values": found.values,
            "new": found.new,
            "gone": found.gone,
            "left_out": dict(sorted(left_out.items())),
            **_validators(state, digest, validators),
        }

    def _unchanged(self, values: int, digest: str, validators: Validators) -> dict[str, Any]:
        return {
            "outcome": "unchanged",
            "values": values,
            **_validators(self._state, digest, validators),
        }

    def _state_of(self, path: Path) -> tuple[str, int]:
        """What the settings and a file of values come to, and how many lines it has."""
        digest = hashlib.sha256(self._request.settings())
        count = 0
        with path.open("rb") as file:
            while some := file.read(_CHUNK):
                digest.update(some)
                count += some.count(b"\n")
        return digest.hexdigest(), count


def _validators(state: str, digest: str, validators: Validators) -> dict[str, Any]:
    return {
        "etag": f"1 {state} {digest} {validators.etag or ''}".rstrip(),
        "last_modified": validators.last_modified,
    }


def _no_memory(allowed: int | None) -> str:
    if allowed is None:
        return "the memory does not suffice for this source; allow the node more"
    return (
        f"the source takes more than {allowed} bytes of memory; divide it, or allow more by "
        "max_memory if the machine has it"
    )


def _bound_memory(most: int | None) -> None:
    """Have this process fail of a source that is too much for it, and the node's never.

    Where the machine itself runs out of memory the kernel ends this process before others.
    """
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    if most is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def main() -> int:
    """Answer the request on standard input."""
    now = time.monotonic()
    try:
        request = Request(**json.load(sys.stdin))
    except (ValueError, TypeError):
        answer = _failed("the request is none; send one JSON object with the keys of `Request`")
    else:
        _bound_memory(request.max_memory)
        answer = answer_to(request, now=now)
    sys.stdout.write(json.dumps(answer) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
