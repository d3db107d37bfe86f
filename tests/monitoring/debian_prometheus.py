"""Prometheus and promtool as Debian packs them, for tests: found, or unpacked into `.cache`.

What the machine has in its PATH is taken, else the package `prometheus` alone: its programs need
nothing else.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from debian_packages import CACHE, unpacked
from nodes import free_port, wait_until

PACKAGE = "prometheus"
TOOL_SECONDS = 240
STOP_SECONDS = 60


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


def install(cache: Path = CACHE / "prometheus") -> Programs:
    """The programs, unpacked now if this checkout has not got them; raises UnavailableError."""
    found = shutil.which("prometheus"), shutil.which("promtool")
    if found[0] and found[1]:
        return Programs(Path(found[0]), Path(found[1]))
    folder = unpacked([PACKAGE], cache, alone=True)
    return Programs(folder / "usr/bin/prometheus", folder / "usr/bin/promtool")


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
