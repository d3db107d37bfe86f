"""Programs of the project that start without reading their modules anew: forked, not executed.

A node needs half a second of a processor to import what it is made of, a command a tenth; some
hundred tests start some. Here one process has imported it all, opened nothing and started no thread
(`serve` says so), and each program is a fork of it, which calls what the console script calls. That
a program starts from nothing is shown by the tests of `tests/tap`, `tests/cli` and
`tests/packaging`, and wherever a test hands its own arguments to `subprocess`.

`python tests/forked.py` is that process. When the one that started it ends, it ends with all that
it forked: tests that are killed leave no nodes behind.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, NoReturn

#: The console scripts, by name: what each is, and what it is made of.
PROGRAMS = {
    "twistd": ("twisted.scripts.twistd", "run", ["hyperbloom.tap", "twisted.plugins"]),
    "hyperbloom": ("hyperbloom.cli", "main", ["hyperbloom.cli.root"]),
}
STATUS = struct.Struct("=i")
REQUEST_BYTES = 262_144


# The process that forks


def serve(requests: socket.socket) -> Callable[[], object]:
    """Fork for each request. Returns in the forks alone, with what each has to run."""
    for module, _, more in PROGRAMS.values():
        for name in (module, *more):
            importlib.import_module(name)
    assert "twisted.internet.reactor" not in sys.modules, "each program makes its own reactor"
    assert threading.active_count() == 1, "a fork has no other thread than this"
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        said, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES, 4)
        if not said:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            return _watched(json.loads(said), *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _watched(said: dict, stdin: int, stdout: int, stderr: int, status: int) -> Callable:
    """Forks the program, and stays behind to tell its process id and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid:
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        os.write(status, STATUS.pack(pid))
        ended = _ended(pid, status)
        if ended is not None:
            os.write(status, STATUS.pack(ended))
        os._exit(0)
    os.close(status)
    for number, descriptor in enumerate((stdin, stdout, stderr)):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(said["folder"])
    os.environ.clear()
    os.environ.update(said["environment"])
    sys.argv = said["arguments"]
    module, name, _ = PROGRAMS[Path(sys.argv[0]).name]
    return getattr(importlib.import_module(module), name)


def _ended(pid: int, status: int) -> int | None:
    """Its exit code at its end; None, and it is ended, when nobody is left to be told."""
    poll = select.poll()
    program = os.pidfd_open(pid)
    poll.register(program, select.POLLIN)
    poll.register(status, 0)
    if (program, select.POLLIN) not in poll.poll():
        os.kill(pid, signal.SIGTERM)
        return None
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


# For tests


class Forked:
    """A program that runs, with as much of `subprocess.Popen` as tests need."""

    def __init__(
        self,
        arguments: list[str],
        *,
        stdin: BinaryIO,
        stdout: BinaryIO,
        stderr: BinaryIO,
        cwd: Path,
    ) -> None:
        self.args = arguments
        self.returncode: int | None = None
        self._status, status = os.pipe()
        said = {"arguments": arguments, "folder": str(cwd), "environment": dict(os.environ)}
        request = json.dumps(said).encode()
        assert len(request) < REQUEST_BYTES
        files = [one.fileno() for one in (stdin, stdout, stderr)]
        socket.send_fds(_server(), [request], [*files, status])
        os.close(status)
        self.pid = self._read()

    def _read(self) -> int:
        said = os.read(self._status, STATUS.size)
        assert said, "the process that forks has ended: its error is among this test's"
        return STATUS.unpack(said)[0]

    def poll(self) -> int | None:
        """Its exit code, less than 0 for a signal; None while it runs."""
        return self._ended_within(0)

    def wait(self, timeout: float | None = None) -> int:
        """The same at its end; subprocess.TimeoutExpired when that takes longer."""
        code = self._ended_within(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended_within(self, seconds: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            self.returncode = self._read()
            os.close(self._status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing, once it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """By SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """By SIGKILL."""
        self.send_signal(signal.SIGKILL)


def run(arguments: list[str], *, stdin: bytes, timeout: float) -> subprocess.CompletedProcess:
    """As subprocess.run: the program reads `stdin`, and what it prints is kept."""
    with (
        tempfile.TemporaryFile() as told,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        told.write(stdin)
        told.seek(0)
        program = Forked(arguments, stdin=told, stdout=out, stderr=err, cwd=Path.cwd())
        try:
            code = program.wait(timeout)
        finally:
            program.kill()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), err.read())


@functools.cache
def _server() -> socket.socket:
    """What the process that forks hears; there is one for each process that runs tests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, REQUEST_BYTES)
    with theirs:
        # No program finds the modules of the tests.
        subprocess.Popen([sys.executable, "-P", __file__], stdin=theirs)
    return ours


def main() -> NoReturn:
    with socket.socket(fileno=os.dup(0)) as requests:
        program = serve(requests)
    sys.exit(program())


if __name__ == "__main__":
    main()
