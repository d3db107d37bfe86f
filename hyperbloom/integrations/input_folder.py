"""What an input keeps on disk: the values it knows of its source, and what is still to be done.

In the folder of an input, `inputs/NAME` of the data folder, are

- ``known``: the values that the source held when it was last read, between line feeds;
- ``state.json``: of which feed they are, and the ETag and date that came with them;
- ``run-…``: a folder of one reading, with its files ``new``, ``gone`` and ``next``.

A reading that found something is first written down (``reading.json``, synced), then done: what is
new is put, what is gone is taken back, ``next`` becomes ``known``, and the state is written. Each
step can be done twice. So after a crash it is done from its beginning before the source is read
again, and ``known``, the ETag and the feed do not come apart. A reading that was not written down
has changed nothing, and is removed.

``known`` counts only beside a state of the same feed. Everything here blocks, and is called in a
thread; what goes wrong is an `OSError`.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hyperbloom.integrations.limits import INPUT_BATCH_BYTES, INPUT_BATCH_VALUES
from hyperbloom.store.lmdb.fsync import sync

__all__ = ["InputFolder", "InputState", "Reading", "batches", "listed_in"]

_STATE, _READING, _RUN = "state.json", "reading.json", "run-"

_BLOCK_BYTES = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class InputState:
    """Of what ``known`` is.

    ``feed``: its key in hex. ``life``: of which life its log is, see `FeedValues.life`.
    ``top_seq``: how far the log was; one that is shorter is of a store that was put back.
    ``etag``, ``last_modified``: what the reader is to be given the next time. ``values``: how many
    the source had. ``left_out``: how many entries were no values, by reason. ``read_at``: in
    seconds since 1970.
    """

    feed: str
    life: int
    top_seq: int
    etag: str | None
    last_modified: str | None
    values: int
    left_out: dict[str, int]
    read_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a reading found: the state that holds once it is done, how many values came and went.

    ``held``: nothing is taken back.
    """

    run: Path
    state: InputState
    new: int
    gone: int
    held: bool


class InputFolder:
    """The folder of one input."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def known(self) -> Path:
        """The values that the source held."""
        return self.path / "known"

    def state(self, feed: str, life: int) -> InputState | None:
        """Of what ``known`` is; None where it is of no use for this feed."""
        found = _read(self.path / _STATE)
        try:
            state = None if found is None else InputState(**found)
        except TypeError:
            return None
        if state is None or (state.feed, state.life) != (feed, life) or not self.known.exists():
            return None
        return state

    def begin(self, feed: str, life: int, top_seq: int) -> tuple[InputState | None, Reading | None]:
        """The state, and a reading that was not done to its end; the rest is cleared away.

        What is of another feed, or of a longer log than the feed has, counts for nothing.
        """
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        left: Reading | None = None
        for run in self.path.glob(f"{_RUN}*"):
            found = _reading(run)
            if found is not None and left is None and _is_of(found.state, feed, life, top_seq):
                left = found
            else:
                self._remove(run)
        state = self.state(feed, life)
        if left is None and (state is None or not _is_of(state, feed, life, top_seq)):
            (self.path / _STATE).unlink(missing_ok=True)
            sync(self.path)
            self.known.unlink(missing_ok=True)
            state = None
        return state, left

    def make_run(self) -> Path:
        """An empty folder for the files of one reading."""
        return Path(tempfile.mkdtemp(prefix=_RUN, dir=self.path))

    def write_down(self, reading: Reading) -> None:
        """Have a reading on disk before anything is done about it."""
        if reading.held:
            self._keep_known(reading.run)
        about = {**asdict(reading), "run": None}
        _write(reading.run / _READING, about)
        sync(self.path)

    def finish(self, reading: Reading, state: InputState) -> None:
        """All of a reading is done: what it read is what is known."""
        following = reading.run / "next"
        if following.exists():
            os.replace(following, self.known)
            sync(self.path)
        self.write_state(state)
        self._remove(reading.run)

    def write_state(self, state: InputState) -> None:
        """Replace the state."""
        _write(self.path / _STATE, asdict(state))

    def drop(self, run: Path) -> None:
        """A reading that found nothing leaves nothing."""
        self._remove(run)

    def _keep_known(self, run: Path) -> None:
        """What was known stays so, with what is new: nothing of it is taken back."""
        kept = run / "kept"
        with kept.open("wb") as sink:
            for path in (self.known, run / "new"):
                with path.open("rb") as source:
                    shutil.copyfileobj(source, sink, _BLOCK_BYTES)
                    size = source.tell()
                    source.seek(max(0, size - 1))
                    if size and source.read() != b"\n":
                        sink.write(b"\n")
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(kept, run / "next")
        sync(run)

    def _remove(self, run: Path) -> None:
        (run / _READING).unlink(missing_ok=True)
        shutil.rmtree(run, ignore_errors=True)


def batches(path: Path) -> Iterator[list[bytes]]:
    """The values of a file in batches of at most `INPUT_BATCH_VALUES` and `INPUT_BATCH_BYTES`."""
    batch: list[bytes] = []
    size = 0
    with path.open("rb", buffering=_BLOCK_BYTES) as file:
        for line in file:
            value = line.removesuffix(b"\n")
            if not value:
                continue
            if batch and (
                len(batch) == INPUT_BATCH_VALUES or size + len(value) > INPUT_BATCH_BYTES
            ):
                yield batch
                batch, size = [], 0
            batch.append(value)
            size += len(value)
    if batch:
        yield batch


def listed_in(path: Path, values: Collection[bytes]) -> set[bytes]:
    """Those of the values that a file of values holds."""
    wanted, found = set(values), set()
    with path.open("rb", buffering=0) as file:
        rest = b""
        while block := file.read(_BLOCK_BYTES):
            *lines, rest = (rest + block).split(b"\n")
            found |= wanted.intersection(lines)
    return found | wanted.intersection((rest,))


def _is_of(state: InputState, feed: str, life: int, top_seq: int) -> bool:
    return (state.feed, state.life) == (feed, life) and state.top_seq <= top_seq


def _reading(run: Path) -> Reading | None:
    found = _read(run / _READING)
    if found is None:
        return None
    try:
        return Reading(**{**found, "run": run, "state": InputState(**found["state"])})
    except (KeyError, TypeError):
        return None


def _read(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _write(path: Path, about: dict[str, Any]) -> None:
    aside = path.with_suffix(".new")
    with aside.open("w", encoding="utf-8") as sink:
        json.dump(about, sink)
        sink.flush()
        os.fsync(sink.fileno())
    os.replace(aside, path)
    sync(path.parent)
