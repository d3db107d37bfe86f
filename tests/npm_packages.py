"""Locked npm packages for tests, put under the checkout's `.cache/`, once for each lock file."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "npm-peer"
MANIFESTS = ("package.json", "package-lock.json", ".npmrc")

INSTALL_SECONDS = 360.0
NO_REGISTRY = (
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ENOTCACHED",
    "ENOTFOUND",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
)
"""What npm names its error when it reached no registry. Any other failure is ours."""


class UnavailableError(Exception):
    """This machine cannot have npm packages; the message says what it lacks."""


def install(manifests: Path, cache: Path = CACHE, *, extra: Sequence[str] = ()) -> Path:
    """The folder of the installed packages, installed now if this checkout has not got them.

    `manifests` is the folder of the package files and their lock. `extra` are further arguments of
    `npm ci`. Raises UnavailableError without Node.js, npm or a registry, and RuntimeError when
    `npm ci` fails for any other reason.
    """
    if shutil.which("node") is None:
        raise UnavailableError("Node.js is not installed (no `node` in PATH)")
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError("npm is not installed (no `npm` in PATH)")

    digest = hashlib.sha256(b"".join((manifests / name).read_bytes() for name in MANIFESTS))
    folder = cache / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    done = folder / "installed"
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            for name in MANIFESTS:
                shutil.copy(manifests / name, folder / name)
            _npm_ci(npm, folder, extra)
            done.touch()
    return folder / "node_modules"


def _npm_ci(npm: str, folder: Path, extra: Sequence[str]) -> None:
    command = [npm, "ci", "--ignore-scripts", "--prefer-offline", *extra]
    try:
        run = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(
            f"`npm ci` got no answer from the registry in {INSTALL_SECONDS:.0f} s"
        ) from error
    if run.returncode == 0:
        return
    for name in NO_REGISTRY:
        if name in run.stderr:
            raise UnavailableError(f"`npm ci` reached no registry ({name})")
    raise RuntimeError(f"`npm ci` failed with status {run.returncode}:\n{run.stderr}")
