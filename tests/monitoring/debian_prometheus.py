"""Prometheus and promtool as Debian packs them, for tests: found, or unpacked into `.cache`.

What the machine has in its PATH is taken. Else apt-get brings the package `prometheus`, whose
signature it checks, and it is unpacked below `.cache/prometheus`: nothing is installed on the
machine, and no service started.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from nodes import free_port, wait_until

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "prometheus"
PACKAGE = "prometheus"
#: For a package of 20 MB, and for lists of packages where the machine has none.
APT_SECONDS = 300
TOOL_SECONDS = 240
STOP_SECONDS = 60


class UnavailableError(Exception):
    """This machine cannot run Prometheus; the message says what it lacks."""


@dataclass(frozen=True)
class Programs:
    """The two programs of the package."""

    prometheus: Path
    promtool: Path

    def tool(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run promtool."""
        return subprocess.run(
            [self.promtool, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS,
            check=False,
        )


def install(cache: Path = CACHE) -> Programs:
    """The programs, unpacked now if this checkout has not got them; raises UnavailableError."""
    found = shutil.which("prometheus"), shutil.which("promtool")
    if found[0] and found[1]:
        return Programs(Path(found[0]), Path(found[1]))
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise UnavailableError(f"neither Prometheus nor {program} is here to bring it")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / "unpacked"
    with open(cache / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _unpack(_download(cache), folder)
    return Programs(folder / "usr/bin/prometheus", folder / "usr/bin/promtool")


def _download(cache: Path) -> Path:
    """The package's file: by the machine's lists of packages, or by lists of our own."""
    apt = ["apt-get", "-q", "-o", "APT::Sandbox::User=root"]
    if _ran([*apt, "download", PACKAGE], cache) is not None:
        for folder in ("lists/partial", "archives/partial"):
            (cache / folder).mkdir(parents=True, exist_ok=True)
        apt += ["-o", f"Dir::State::lists={cache / 'lists'}", "-o", f"Dir::Cache={cache}"]
        problem = _ran([*apt, "update"], cache) or _ran([*apt, "download", PACKAGE], cache)
        if problem is not None:
            raise UnavailableError(f"apt-get cannot bring the package {PACKAGE}: {problem}")
    return max(cache.glob(f"{PACKAGE}_*.deb"), key=lambda path: path.stat().st_mtime)


def _unpack(package: Path, folder: Path) -> None:
    aside = folder.with_name("unpacking")
    shutil.rmtree(aside, ignore_errors=True)
    problem = _ran(["dpkg-deb", "-x", str(package), str(aside)], folder.parent)
    package.unlink()
    if problem is not None:
        raise UnavailableError(f"{package.name} cannot be unpacked: {problem}")
    aside.rename(folder)


def _ran(command: list[str], folder: Path) -> str | None:
    """None where a command was successful, else its last words."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=APT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {APT_SECONDS} s"
    if done.returncode == 0:
        return None
    return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]


class RunningPrometheus:
    """A Prometheus on 127.0.0.1, asked by its HTTP API."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, **query: str) -> dict:
        """What the API answers to a GET; raises OSError where it does not answer well."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=TOOL_SECONDS) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[dict]:
        """The samples of an instant query."""
        return self.ask("query", query=expression)["result"]

    def answers(self) -> bool:
        """Whether it answers already."""
        try:
            self.ask("status/runtimeinfo")
        except OSError:
            return False
        return True


@contextlib.contextmanager
def running(programs: Programs, config: Path, folder: Path) -> Iterator[RunningPrometheus]:
    """Prometheus with a configuration file; what it stores and logs goes into `folder`."""
    port = free_port()
    folder.mkdir()
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [
                programs.prometheus,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        found = RunningPrometheus(port)

        def ready() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            return found.answers()

        wait_until(ready, 30, "Prometheus answers")
        yield found
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        finally:
            process.kill()
            process.wait()
