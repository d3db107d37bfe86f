"""The crate distributed-topic-tracker, built by cargo from topic_tracker_records/.

`build()` compiles it under the checkout's `.cache/`, once for each state of the sources; cargo
writes its lock file there, too, which names a registry and so stays out of the project.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "topic_tracker_records"
CACHE = HERE.parents[1] / ".cache" / "tracker-crate"
FILES = ("Cargo.toml", "src/main.rs")

BUILD_SECONDS = 540.0
ANSWER_SECONDS = 180.0

NO_REGISTRY = (
    "failed to download from",
    "failed to get `",
    "Could not resolve host",
    "Couldn't connect to server",
    "Timeout was reached",
    "spurious network error",
)
"""What cargo says when it reached no registry. Any other failure is ours."""


class UnavailableError(Exception):
    """This machine cannot build the crate; the message says what it lacks."""


def build(cache: Path = CACHE) -> Path:
    """The program, built now if this checkout has not got it.

    Raises UnavailableError without cargo or a registry, and RuntimeError when the build fails for
    any other reason.
    """
    digest = hashlib.sha256(b"".join((SOURCES / name).read_bytes() for name in FILES))
    folder = cache / digest.hexdigest()[:16]
    program = folder / "target" / "debug" / "topic-tracker-records"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            _cargo_build(folder)
    return program


def _cargo_build(folder: Path) -> None:
    cargo = shutil.which("cargo")
    if cargo is None:
        raise UnavailableError("Rust is not installed (no `cargo` in PATH)")
    for name in FILES:
        shutil.copy(SOURCES / name, folder / name)
    done = subprocess.run(
        # Not for speed: a build for release takes twice the time, and the tests read some records.
        [cargo, "build", "--quiet", "--target-dir", folder / "target"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode and any(words in done.stderr for words in NO_REGISTRY):
        raise UnavailableError("cargo reached no registry to fetch the crate from")
    if done.returncode:
        raise RuntimeError(f"the crate was not built: {done.stderr[-2000:]}")


def write(program: Path) -> dict[str, Any]:
    """Fresh records by the crate, in the form of tests/vectors/topic-tracker.json."""
    written: dict[str, Any] = json.loads(_run(program, "write"))
    return written


def read(program: Path, asked: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the crate reads in each of the given encrypted records."""
    lines = _run(program, "read", "\n".join(json.dumps(each) for each in asked))
    return [json.loads(line) for line in lines.splitlines()]


def _run(program: Path, command: str, text: str = "") -> str:
    done = subprocess.run(
        [program, command],
        input=text,
        capture_output=True,
        text=True,
        timeout=ANSWER_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr[-2000:]}")
    return done.stdout
