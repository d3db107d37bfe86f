"""Chromium for tests: found in the PATH, or Debian's package unpacked into `.cache/chromium`.

What the machine has is taken. Else apt-get says which packages `chromium` still needs here, brings
them and checks their signatures, and they are unpacked beside each other: nothing is installed on
the machine, and no right of root's is needed.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "chromium"
PACKAGE = "chromium"
#: A font for a machine that has none: without one a page has no text.
FONT = "fonts-dejavu-core"
NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
LIBRARY = re.compile(r"\.so[.0-9]*$")
#: For some 200 MB of packages, and for lists of packages where the machine has none.
APT_SECONDS = 400


class UnavailableError(Exception):
    """This machine cannot run a browser; the message says what it lacks."""


def browser(cache: Path = CACHE) -> list[str]:
    """The beginning of a command that runs a browser, unpacked now if it is not here.

    Raises UnavailableError.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return [found]
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise UnavailableError(f"neither Chromium nor {program} is here to bring it")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "unpacked"
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _unpack(_download(cache), folder)
    libraries = [folder / "usr/lib/chromium", *_library_folders(folder)]
    path = ":".join([*map(str, libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    fonts = _fonts(folder)
    program = folder / "usr/lib/chromium/chromium"
    return ["env", f"LD_LIBRARY_PATH={path}", *fonts, str(program)]


def _library_folders(folder: Path) -> list[Path]:
    """Where the unpacked packages have libraries."""
    found = {path.parent for path in folder.glob("**/lib/**/*.so*") if LIBRARY.search(path.name)}
    return sorted(found - {folder / "usr/lib/chromium"})


def _fonts(folder: Path) -> list[str]:
    """How fontconfig finds the unpacked fonts; nothing where the machine has its own."""
    if Path("/etc/fonts/fonts.conf").exists() and Path("/usr/share/fonts").exists():
        return []
    config = folder / "fonts.conf"
    config.write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">'
        f"<fontconfig><dir>{folder}/usr/share/fonts</dir>"
        f"<cachedir>{folder}/fonts-cache</cachedir></fontconfig>"
    )
    return [f"FONTCONFIG_FILE={config}"]


def _download(cache: Path) -> list[Path]:
    """The files of all packages that the machine lacks, by its lists of packages or by our own."""
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
    archives = cache / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    try:
        names = _lacking(apt, cache)
        _run([*apt, "download", *names], archives)
    except UnavailableError:
        (cache / "lists/partial").mkdir(parents=True, exist_ok=True)
        apt += ["-o", f"Dir::State::lists={cache / 'lists'}", "-o", f"Dir::Cache={cache}"]
        _run([*apt, "update"], cache)
        _run([*apt, "download", *_lacking(apt, cache)], archives)
    return sorted(archives.glob("*.deb"))


def _lacking(apt: list[str], folder: Path) -> list[str]:
    """The packages that an installation of Chromium would bring, each with its version."""
    plan = _run([*apt, "install", "--simulate", "--no-install-recommends", PACKAGE, FONT], folder)
    found = re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+) ", plan, re.MULTILINE)
    return [f"{name}={version}" for name, version in found]


def _unpack(packages: list[Path], folder: Path) -> None:
    aside = folder.with_name("unpacking")
    shutil.rmtree(aside, ignore_errors=True)
    for package in packages:
        _run(["dpkg-deb", "-x", str(package), str(aside)], folder.parent)
        package.unlink()
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
        raise UnavailableError(f"{command[0]} cannot bring {PACKAGE}: {words}")
    return done.stdout


if __name__ == "__main__":
    print(*browser())
