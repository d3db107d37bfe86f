"""Examples of a page, typed block by block as they stand there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from nodes import HYPERBLOOM, READY_SECONDS, SLACK, wait_until

from hyperbloom.client.client import Client, NodeUnreachable

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: What goes on until it is ended.
_GOES_ON = ("hyperbloom run ", "unbound -d ")
_UNSHARE = "unshare --map-root-user --net bash"
#: A line of these says behind a # what comes of it.
_ASKS = ("dig ", "ping ")


def blocks(page: str, heading: str) -> Iterator[str]:
    """The commands of a section of a page."""
    _, _, text = (DOCS / page).read_text().partition(f"\n## {heading}\n")
    section, _, _ = text.partition("\n## ")
    found = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert found, heading
    yield from found


class Typist:
    """Types blocks in a folder, and ends what goes on in the background.

    ``programs`` is a folder of programs that come before the machine's. ``ask`` is called with the
    words of a line that asks something, and the command by which a program of the same place is
    started; it answers as the page says it.
    """

    def __init__(
        self, folder: Path, programs: Path, ask: Callable[[list[str], list[str]], str | None]
    ) -> None:
        self._folder = folder
        path = f"{programs}:{Path(HYPERBLOOM).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path}
        self._ask = ask
        self._place: list[str] = []
        self._running: list[subprocess.Popen[bytes]] = []
        #: Nodes that do not answer yet, each with its control socket.
        self._starting: dict[subprocess.Popen[bytes], Path] = {}

    def type_all(self, found: Iterator[str], changes: Mapping[str, str]) -> None:
        """Types the blocks in order, with texts changed that this machine needs otherwise."""
        for block in found:
            for old, new in changes.items():
                block = block.replace(old, new)
            self._type(block)

    def _type(self, block: str) -> None:
        lines = block.splitlines()
        if block.startswith(_GOES_ON):
            for line in lines:
                self._begin(line)
            return
        for process, path in self._starting.items():
            wait_until(lambda: self._answers(process, path), READY_SECONDS, str(path))  # noqa: B023
        self._starting.clear()
        if block.startswith(_ASKS):
            for line in lines:
                command, _, outcome = line.partition("#")
                self._expect(shlex.split(command), outcome.strip())
        elif block.strip() == _UNSHARE:
            self._unshare()
        else:
            self._run(block)

    def _run(self, block: str) -> None:
        where = self._folder.parent / "folder"
        done = subprocess.run(
            [*self._place, "bash", "-ec", f"{block}\npwd >{shlex.quote(str(where))}"],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SLACK * 60,
            check=False,
        )
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        self._folder = Path(where.read_text().strip())

    def _begin(self, line: str) -> None:
        words = shlex.split(line.partition(" >")[0])
        with (self._folder / f"{words[0]}.{len(self._running)}.log").open("wb") as log:
            process = self._popen(words, stdout=log)
        if words[0] == "hyperbloom":
            self._starting[process] = self._folder / words[-1] / "control.sock"

    def _popen(self, words: list[str], **streams: object) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [*self._place, *words],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            **streams,  # type: ignore[call-overload]
        )
        self._running.append(process)
        return process

    def _answers(self, process: subprocess.Popen[bytes], path: Path) -> bool:
        assert process.poll() is None, self.logs()
        with suppress(NodeUnreachable), Client(path) as client:
            return bool(client.ping()["pid"])
        return False

    def _expect(self, words: list[str], outcome: str) -> None:
        assert outcome
        wait_until(lambda: self._ask(words, self._place) == outcome, 60, f"{words}: {outcome}")

    def _unshare(self) -> None:
        """From now on everything is typed in namespaces that a process holds open."""
        holder = self._popen([*_UNSHARE.split()[:-1], "sleep", "infinity"], stdout=subprocess.PIPE)
        name = Path(f"/proc/{holder.pid}/comm")

        def ready() -> bool:
            if holder.poll() is not None:
                pytest.skip(f"not by this kernel: {holder.stdout.read().decode()}")
            return name.read_text().strip() == "sleep"

        wait_until(ready, 10, "a namespace")
        self._place = ["nsenter", f"--target={holder.pid}", "--user", "--preserve-credentials"]
        self._place += ["--net"]

    def logs(self) -> str:
        """What those said that went on."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text(errors='replace')[-3_000:]}"
            for path in sorted(self._folder.glob("*.log"))
        )

    def close(self) -> None:
        """End all, the last first."""
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
