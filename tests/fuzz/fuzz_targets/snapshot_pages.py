"""A snapshot with broken pages, read in a child process, which may die of it and nothing else.

LMDB trusts its own pages: a changed one can end the process that maps it. So the child reads, and
what is asked here is that it answers, or dies, within its time, and never fails with an error that
has no name. Nothing of the child is measured: the changes are blind, as many as there is time for.
"""

from __future__ import annotations

import atexit
import contextlib
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from choices import Choices, piece
from sound_snapshot import make_snapshot

MAX_BYTES = 256
RUNS = 20

#: The CPU of a busy machine may be away for long; a walk in a circle never ends.
ANSWER_SECONDS: Final = 60.0

_READER = Path(__file__).resolve().parents[1] / "snapshot_reader.py"
_FOLDER = Path(tempfile.mkdtemp(prefix="hb-"))
_SOUND = _FOLDER / "sound"
_CHANGED = _FOLDER / "changed"
make_snapshot(_SOUND)
_PAGES = (_SOUND / "data.mdb").read_bytes()
shutil.copytree(_SOUND, _CHANGED)
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)

deaths = 0


class _Reader:
    """The child; made anew after each death."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def read(self) -> str:
        """What it says of the changed snapshot: `ok`, `refused`, `died`, or an unnamed error."""
        if self._process is None or self._process.poll() is not None:
            self._start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write("read\n")
            process.stdin.flush()
        except BrokenPipeError:
            return "died"
        if not select.select([process.stdout], [], [], ANSWER_SECONDS)[0]:
            self.stop()
            return f"no answer in {ANSWER_SECONDS:g} s"
        line = process.stdout.readline()
        if line:
            return line.strip()
        code = process.wait()
        return "died" if code < 0 else f"ended with {code}"

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_READER), str(_CHANGED)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def stop(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
            self._process = None


_reader = _Reader()
atexit.register(_reader.stop)


def fuzz(data: bytes) -> bool:
    """Bits turned at some places of the file, and its end cut off."""
    global deaths
    choices = Choices(data)
    pages = bytearray(_PAGES)
    cut = int.from_bytes(choices.take(3), "big")
    for _ in range(16):
        at, mask = int.from_bytes(choices.take(3), "big") % len(pages), choices.piece()
        if not mask:
            break
        for place, bits in zip(range(at, len(pages)), mask, strict=False):
            pages[place] ^= bits
    (_CHANGED / "data.mdb").write_bytes(pages[: len(pages) - cut] if cut < len(pages) else pages)
    said = _reader.read()
    deaths += said == "died"
    assert said in ("ok", "refused", "died"), said
    return said == "ok"


def seeds() -> dict[str, bytes]:
    """Nothing changed; and masks that turn nothing, where pages say what they are."""
    found = {"sound": bytes(3)}
    for page in range(len(_PAGES) // 4_096):
        at = page * 4_096 + 10
        found[f"page-{page:02}"] = bytes(3) + at.to_bytes(3, "big") + piece(bytes(6))
    return found
