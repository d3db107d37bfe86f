"""A process that writes a feed's values as the file of another tool, beside the file it will be.

    python -P -m hyperbloom.outputs.rendering <request

It reads a `Request` as JSON on standard input and prints an `Answer`, or why there is none. The
store is that of a running node, which does not wait for it: it is read slice by slice, and what is
written takes the memory of one slice. The file at the path is not touched: the node puts the new
one in its place, where it differs.

Two files are the same when their digests are. Of a zone the serial number is left out of it: it is
another one in a zone that differs, greater than that of the file that is there (RFC 1982).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from hyperbloom.errors import HyperbloomError
from hyperbloom.outputs.allow import Allowed
from hyperbloom.outputs.formats import FORMATS
from hyperbloom.outputs.formats.format import Rendering
from hyperbloom.outputs.limits import MAX_ALLOWED, SLICE_BYTES, SLICE_VALUES
from hyperbloom.outputs.new_files import (
    NotWritten,
    finish,
    made,
    open_present,
    remove_left,
    require_place,
)
from hyperbloom.outputs.selection import Counts
from hyperbloom.store import Store

__all__ = ["Answer", "Request", "next_serial", "render"]

#: Characters of a sentence that says what is wrong: the node reads the last bytes of an answer.
_SENTENCE: Final = 400
_READ_BYTES: Final = 1 << 20
#: The format with a serial number, and that number at the beginning of it.
_ZONE: Final = "rpz"
_SERIAL = re.compile(rb"(\A\$TTL \d+\n@ SOA \S+ \S+ )(\d{1,10})(?= )")
_HEAD_BYTES: Final = 256
_SERIALS: Final = 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be written. ``store``, ``allow``, ``path`` and ``new`` are paths.

    ``feed`` and ``allow_feed`` are keys, ``start`` and ``end`` values, all in hex. ``path`` is the
    file to compare with, ``new`` the one to write, of ``mode``. ``parent`` is the process that
    asks: when it has ended nobody waits for the answer.
    """

    store: str
    feed: str
    start: str
    end: str | None
    format: str
    set_name: str
    allow: str | None
    allow_feed: str | None
    path: str
    new: str
    mode: int
    parent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was written. ``same``: as the file that is there, and nothing new is left behind.

    ``digest``: of the content, in hex. ``entries``: values that are in the file. ``left_out``: how
    many are not, by reason.
    """

    same: bool
    digest: str
    bytes: int
    entries: int
    left_out: dict[str, int] = field(default_factory=dict)


def render(store: Store, request: Request, *, now: float) -> Answer:
    """Write the new file and compare it; `now` is in seconds since 1970.

    Raises `NotWritten`, `StoreError`.
    """
    path, new = Path(request.path), Path(request.new)
    require_place(path)
    remove_left(path)
    source = _Source(store, request)
    rendering = Rendering(
        allowed=source.allowed(),
        serial=next_serial(_serial_at(path), int(now)),
        set_name=request.set_name,
    )
    left_out = Counts()
    parts = FORMATS[request.format].file(source.values(), rendering, left_out)
    digest = _Digest(is_zone=request.format == _ZONE)
    with made(new) as file:
        for part in parts:
            file.write(part)
            digest.add(part)
        same = _is_at(path, digest)
        if not same:
            finish(file, path, request.mode)
    if same:
        new.unlink()
    return Answer(
        same=same,
        digest=digest.hex,
        bytes=digest.size,
        entries=source.read - left_out.total(),
        left_out=dict(left_out),
    )


def next_serial(present: int | None, now: int) -> int:
    """The serial number of a new zone: the time, unless that is not greater than `present`."""
    now %= _SERIALS
    if present is None or 0 < (now - present) % _SERIALS < _SERIALS // 2:
        return now
    return (present + 1) % _SERIALS


class _Source:
    """The values of the feed, and what is never to come out."""

    def __init__(self, store: Store, request: Request) -> None:
        self._store = store
        self._request = request
        #: Values that were read.
        self.read = 0

    def values(self) -> Iterator[list[bytes]]:
        """Slice by slice, each as the store has it then."""
        request = self._request
        end = None if request.end is None else bytes.fromhex(request.end)
        for values in self._slices(request.feed, bytes.fromhex(request.start), end):
            self.read += len(values)
            yield values

    def allowed(self) -> Allowed:
        """Raises `NotWritten`: without the list the file would hold what it must not."""
        request = self._request
        if request.allow is not None:
            try:
                return Allowed(Path(request.allow).read_bytes().splitlines())
            except OSError as error:
                raise NotWritten(
                    f"the allow list {request.allow} cannot be read ({error.strerror}); correct "
                    "`allow`, or let the node's user read it"
                ) from None
        if request.allow_feed is not None:
            return Allowed(self._allowed_values(request.allow_feed))
        return Allowed()

    def _allowed_values(self, key: str) -> Iterator[bytes]:
        count = 0
        for values in self._slices(key, b"", None):
            count += len(values)
            if count > MAX_ALLOWED:
                raise NotWritten(
                    f"the feed of `allow_feed` has more than {MAX_ALLOWED:,} values; give one with "
                    "fewer, or a file by `allow`"
                )
            yield from values

    def _slices(self, key: str, start: bytes, end: bytes | None) -> Iterator[list[bytes]]:
        feed = bytes.fromhex(key)
        following: bytes | None = start
        while following is not None:
            if os.getppid() != self._request.parent:
                raise NotWritten("the node that asked for it has ended")
            piece = self._store.range_slice(
                feed, following, end, limit=SLICE_VALUES, max_bytes=SLICE_BYTES
            )
            following = piece.next_start
            yield piece.values


class _Digest:
    """The digest of a file, part by part; `is_zone`: without its serial number."""

    def __init__(self, *, is_zone: bool) -> None:
        self.is_zone = is_zone
        self.size = 0
        self._hash = hashlib.blake2b(digest_size=32)

    def add(self, part: bytes) -> None:
        """The first part of a zone holds the serial number."""
        if self.is_zone and not self.size:
            self._hash.update(_SERIAL.sub(rb"\1", part))
        else:
            self._hash.update(part)
        self.size += len(part)

    @property
    def hex(self) -> str:
        """In hex."""
        return self._hash.hexdigest()


def _parts_of(file: IO[bytes]) -> Iterable[bytes]:
    return iter(lambda: file.read(_READ_BYTES), b"")


def _is_at(path: Path, digest: _Digest) -> bool:
    """Whether what is at `path` has this digest."""
    present = open_present(path)
    if present is None:
        return False
    with present:
        if not digest.is_zone and os.fstat(present.fileno()).st_size != digest.size:
            return False
        found = _Digest(is_zone=digest.is_zone)
        for part in _parts_of(present):
            found.add(part)
    return found.hex == digest.hex


def _serial_at(path: Path) -> int | None:
    """The serial number of the zone at `path`, None where there is none."""
    present = open_present(path)
    if present is None:
        return None
    with present:
        found = _SERIAL.match(present.read(_HEAD_BYTES))
    return int(found[2]) % _SERIALS if found else None


def main() -> None:
    """What the process does."""
    # It leaves nothing behind when it is told to end, and no values in a core file.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    # In the sandbox of the unit, where there are no such files anyway, it may not say so.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answer: dict[str, Any]
    try:
        request = Request(**json.loads(sys.stdin.buffer.read()))
        with closing(Store.open_beside(Path(request.store))) as store:
            answer = asdict(render(store, request, now=time.time()))
    except HyperbloomError as error:
        answer = {"problem": str(error)[:_SENTENCE]}
    except Exception as error:
        # Its own words may hold values.
        where = traceback.extract_tb(error.__traceback__)[-1]
        kind = type(error).__name__
        answer = {"problem": f"{kind} in {where.filename}:{where.lineno}; please report it"}
    text = json.dumps(answer, ensure_ascii=False)
    with suppress(BrokenPipeError):
        sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
