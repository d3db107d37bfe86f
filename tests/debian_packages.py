"""Programs of Debian packages for tests, unpacked below `.cache`.

apt-get says which packages are still needed here, brings them and checks their signatures, and they
are unpacked beside each other: nothing is installed on the machine, no service is started, and no
right of root's is needed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache"
#: For some packages, and for lists of packages where the machine has none.
APT_SECONDS = 400
_APT = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]


class UnavailableError(Exception):
    """The packages cannot be had on this machine; the message says what it lacks."""


def unpacked(packages: Sequence[str], cache: Path, *, alone: bool = False) -> Path:
    """The folder in which the packages, and what they need, lie as on a machine.

    `alone`: without what they need. What this checkout has not got is brought now. Raises
    UnavailableError.
    """
    for needed in ("apt-get", "dpkg-deb"):
        if shutil.which(needed) is None:
            raise UnavailableError(f"there is no {needed} to bring {', '.join(packages)}")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "unpacked"
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _unpack(_download(packages, cache, alone=alone), folder)
    return folder


def environment(folder: Path) -> dict[str, str]:
    """The variables with which a program of an unpacked folder finds its libraries."""
    libraries = {str(path.parent) for path in folder.glob("**/lib/**/*.so*")}
    path = ":".join([*sorted(libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return {**os.environ, "LC_ALL": "C", "LD_LIBRARY_PATH": path}


def _download(packages: Sequence[str], cache: Path, *, alone: bool) -> list[Path]:
    """The files of the packages, by the machine's lists of packages or by lists of our own."""
    archives = cache / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    apt = _APT

    def named(apt: list[str]) -> Sequence[str]:
        return packages if alone else _lacking(apt, packages, cache)

    try:
        _run([*apt, "download", *named(apt)], archives)
    except UnavailableError:
        (cache / "lists/partial").mkdir(parents=True, exist_ok=True)
        apt = [*apt, "-o", f"Dir::State::lists={cache / 'lists'}", "-o", f"Dir::Cache={cache}"]
        _run([*apt, "update"], cache)
        _run([*apt, "download", *named(apt)], archives)
    return sorted(archives.glob("*.deb"))


def _lacking(apt: list[str], packages: Sequence[str], folder: Path) -> list[str]:
    """The packages that an installation would bring, each with its version.

    One that is installed already is unpacked all the same.
    """
    options = ["install", "--simulate", "--reinstall", "--no-install-recommends"]
    plan = _run([*apt, *options, *packages], folder)
    found = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", plan, re.MULTILINE)
    return [f"{name}={version}" for name, version in found]


def _unpack(archives: list[Path], folder: Path) -> None:
    aside = folder.with_name("unpacking")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    for archive in archives:
        _run(["dpkg-deb", "-x", str(archive), str(aside)], folder.parent)
        archive.unlink()
    aside.rename(folder)


def _run(command: list[str], folder: Path) -> str:
    """What a command prints; raises UnavailableError with its last words where it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=APT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"{command[0]} gave no answer within {APT_SECONDS} s") from None
    if done.returncode:
        words = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise UnavailableError(f"{command[0]}: {words}")
    return done.stdout


def program(folder: Path, name: str, text: str) -> Path:
    """A program of a shell's commands, in the place of one that a test does not want."""
    file = folder / name
    file.write_text(f"#!{shutil.which('sh', path=os.defpath)}\n{text}\n")
    file.chmod(0o755)
    return file
