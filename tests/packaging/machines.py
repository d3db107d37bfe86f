"""A small Debian in a folder, started by systemd-nspawn: for what only a whole system shows.

debootstrap makes it once, in `.cache/debian-root`. A test gets a copy with a network of its own, in
which there is nothing but loopback. It needs root, and the right to mount.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from nodes import wait_until

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache" / "debian-root"
#: What the package depends on, what boots, and what a container is built with.
PACKAGES = "python3,libstdc++6,systemd,systemd-sysv,dbus,procps,python3-venv"
DEBOOTSTRAP_SECONDS = 280
COMMAND_SECONDS = 240
BOOT_SECONDS = 60
TOOLS = ("debootstrap", "systemd-nspawn", "nsenter")


class UnavailableError(Exception):
    """This machine cannot run another one; the message says what it lacks."""


def codename() -> str:
    """This machine's release of Debian; raises UnavailableError where it is another system."""
    text = Path("/etc/os-release").read_text(encoding="utf-8")
    told = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    if told.get("ID") != "debian":
        raise UnavailableError("this is no Debian")
    return told["VERSION_CODENAME"]


def base_system() -> Path:
    """The folder that machines are copies of, made now if it is not there."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        what = f"{', '.join(missing)} missing" if missing else "only root starts a machine"
        raise UnavailableError(what)
    base = CACHE / codename()
    if not base.is_dir():
        aside = base.with_suffix(".making")
        shutil.rmtree(aside, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename(), aside],
            capture_output=True,
            text=True,
            timeout=DEBOOTSTRAP_SECONDS,
            check=False,
        )
        if made.returncode != 0:
            raise UnavailableError(f"debootstrap: {(made.stdout + made.stderr)[-300:]}")
        aside.rename(base)
    return base


class Machine:
    """One that runs. `folder` is its root."""

    def __init__(self, folder: Path, leader: int) -> None:
        self.folder = folder
        self._leader = leader

    def run(self, *command: str, user: str | None = None) -> subprocess.CompletedProcess[str]:
        """A command in it, by root or by a user."""
        enter = ["nsenter", f"--target={self._leader}", "--all"]
        if user is not None:
            command = ("setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command)
        return subprocess.run(
            [*enter, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )

    def out(self, *command: str, user: str | None = None) -> str:
        """What a command prints, which must be successful."""
        done = self.run(*command, user=user)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout


def _leader(nspawn: subprocess.Popen[bytes], log: Path) -> int:
    """The first process of a machine."""
    path = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")

    def children() -> list[str]:
        assert nspawn.poll() is None, log.read_text(errors="replace")
        return path.read_text().split()

    wait_until(children, BOOT_SECONDS, "the machine has a first process")
    return int(children()[0])


@contextlib.contextmanager
def running(base: Path, folder: Path) -> Iterator[Machine]:
    """A copy of `base` in a new folder, booted; ended when this is left."""
    root = folder / "root"
    subprocess.run(["cp", "--archive", "--reflink=auto", base, root], check=True)
    log = folder / "console"
    with log.open("wb") as console:
        # No bus and no machine manager is asked: there may be none on this machine.
        nspawn = subprocess.Popen(
            [
                "systemd-nspawn", f"--directory={root}", f"--machine=hyperbloom-{os.getpid()}",
                "--register=no", "--keep-unit", "--private-network", "--boot",
            ],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
        )  # fmt: skip
    leader = None
    try:
        leader = _leader(nspawn, log)
        machine = Machine(root, leader)

        def booted() -> bool:
            assert nspawn.poll() is None, log.read_text(errors="replace")
            state = machine.run("systemctl", "is-system-running").stdout.strip()
            return state in ("running", "degraded")

        wait_until(booted, BOOT_SECONDS, "the machine has booted")
        yield machine
    finally:
        if leader is not None:
            # All that runs in it ends with its first process.
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGKILL)
        else:
            nspawn.kill()
        nspawn.wait(COMMAND_SECONDS)
        shutil.rmtree(root)
