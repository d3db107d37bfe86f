"""Programs run with a time limit and without a shell, and say why they failed."""

from __future__ import annotations

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pumped_reactor import CEILING, PumpedReactor
from twisted.internet.defer import AlreadyCalledError, CancelledError
from twisted.logger import capturedLogs

from hyperbloom.integrations import limits
from hyperbloom.integrations.commands import CommandFailed, Commands


@pytest.fixture
def reactor() -> Iterator[PumpedReactor]:
    pumped = PumpedReactor()
    yield pumped
    pumped.stop()


@pytest.fixture
def commands(reactor: PumpedReactor) -> Iterator[Commands]:
    made = Commands(reactor)
    made.start()
    yield made
    reactor.wait(made.stop())


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_reads_what_it_is_given_and_gives_its_last_bytes(
    reactor: PumpedReactor, commands: Commands
) -> None:
    given = os.urandom(1_000_000)
    program = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    ended = reactor.wait(commands.run(python(program), seconds=60, given=given))
    assert ended.output == given[-limits.OUTPUT_TAIL_BYTES :]


def test_does_not_have_to_read(reactor: PumpedReactor, commands: Commands) -> None:
    ended = reactor.wait(commands.run(python("print(7)"), seconds=60, given=bytes(1_000_000)))
    assert ended.output == b"7\n"


def test_all_that_it_is_given_is_there_from_the_first_moment(
    reactor: PumpedReactor, commands: Commands
) -> None:
    """A pipe would end early where the node is killed, and look like the end of what was given."""
    program = "import os; print(os.fstat(0).st_size)"
    ended = reactor.wait(commands.run(python(program), seconds=60, given=bytes(1_000_000)))
    assert ended.output == b"1000000\n"


def test_arguments_are_no_words_of_a_shell(reactor: PumpedReactor, commands: Commands) -> None:
    words = ["$HOME", "a b", ";exit 3", "*"]
    ended = reactor.wait(
        commands.run([*python("import sys; print(sys.argv[1:])"), *words], seconds=60)
    )
    assert ended.output.decode() == f"{words}\n"


def test_environment_is_added(reactor: PumpedReactor, commands: Commands) -> None:
    program = "import os; print(os.environ['ONE'], 'PATH' in os.environ)"
    ended = reactor.wait(commands.run(python(program), seconds=60, environment={"ONE": "two"}))
    assert ended.output == b"two True\n"


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; sys.exit('no\\x1b[31m such\\nset')", "ended with 1: set"),
        ("import sys; sys.exit('\\x1b[31mred')", "ended with 1:  [31mred"),
        ("raise SystemExit(7)", "ended with 7"),
        ("import os; os.abort()", "was ended by SIGABRT"),
    ],
)
def test_a_failure_says_how_it_ended_and_its_last_line(
    reactor: PumpedReactor, commands: Commands, program: str, why: str
) -> None:
    with pytest.raises(CommandFailed) as raised:
        reactor.wait(commands.run(python(program), seconds=60))
    assert str(raised.value) == f"{Path(sys.executable).name} {why}"


def test_what_is_secret_stays_out_of_the_failure(
    reactor: PumpedReactor, commands: Commands
) -> None:
    with pytest.raises(CommandFailed) as raised:
        reactor.wait(commands.run(python("import sys; sys.exit('token')"), seconds=60, quiet=True))
    assert "token" not in str(raised.value)


@pytest.mark.parametrize("name", ["/nowhere/program", "/etc/hosts", "/"])
def test_what_cannot_be_started_is_said(
    reactor: PumpedReactor, commands: Commands, name: str
) -> None:
    with pytest.raises(CommandFailed, match="cannot be started"):
        reactor.wait(commands.run([name], seconds=60))


def _ends(number: int) -> bool:
    """Whether a process ends; one that nobody has waited for yet has ended.

    What was killed needs a moment to end.
    """
    end = time.monotonic() + CEILING
    while time.monotonic() < end:
        try:
            stat = Path(f"/proc/{number}/stat").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return True
        if stat.rpartition(")")[2].split()[0] in "ZX":
            return True
        time.sleep(0.01)
    return False


def test_one_that_takes_too_long_ends_with_all_it_started(
    tmp_path: Path, reactor: PumpedReactor, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hyperbloom.integrations.commands.ENDING_SECONDS", 0.2)
    numbers = tmp_path / "numbers"
    program = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(numbers)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(CommandFailed, match=r"was stopped: it took longer than 5 s"):
        reactor.wait(commands.run(python(program), seconds=5))
    for number in numbers.read_text(encoding="ascii").split():
        assert _ends(int(number))


def test_what_a_program_leaves_behind_ends_with_it(
    reactor: PumpedReactor, commands: Commands
) -> None:
    """It holds the streams open, and would keep the node waiting."""
    program = (
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid)\n"
    )
    ended = reactor.wait(commands.run(python(program), seconds=60))
    assert _ends(int(ended.output))


def test_what_leaves_its_session_keeps_nobody_waiting(
    reactor: PumpedReactor, commands: Commands
) -> None:
    """A daemon that a program has started goes on, though it holds the program's streams."""
    program = (
        "import subprocess, sys\n"
        "daemon = 'import time; time.sleep(600)'\n"
        "child = subprocess.Popen([sys.executable, '-c', daemon], start_new_session=True)\n"
        "sys.exit(f'left {child.pid}')\n"
    )
    with pytest.raises(CommandFailed) as raised:
        reactor.wait(commands.run(python(program), seconds=60))
    number = int(str(raised.value).rpartition("left ")[2])
    os.kill(number, signal.SIGKILL)  # raises where it does not run any more


def test_what_it_writes_without_an_end_is_read_and_let_go(
    reactor: PumpedReactor, commands: Commands
) -> None:
    program = "import sys\nfor n in range(20_000): print(n, 'x' * 200)\nprint('the last')"
    ended = reactor.wait(commands.run(python(program), seconds=60))
    assert ended.output.endswith(b"the last\n")
    assert len(ended.output) == limits.OUTPUT_TAIL_BYTES


def test_a_stop_ends_what_runs_and_what_waits(reactor: PumpedReactor) -> None:
    commands = Commands(reactor)
    commands.start()
    sleeping = "import time; time.sleep(600)"
    runs = [commands.run(python(sleeping), seconds=600) for _ in range(limits.MAX_COMMANDS + 2)]
    stopped = commands.stop()
    for run in runs:
        with pytest.raises(CommandFailed, match="it was ended with the node"):
            reactor.wait(run)
    reactor.wait(stopped)


def test_one_that_is_cancelled_ends_and_says_nothing_more(
    tmp_path: Path, reactor: PumpedReactor
) -> None:
    commands = Commands(reactor)
    commands.start()
    begun = tmp_path / "begun"
    program = f"#!{sys.executable}\nimport time\nopen({str(begun)!r}, 'w').close()\ntime.sleep(600)"
    script = tmp_path / "cancelled-one"
    script.write_text(program, encoding="utf-8")
    script.chmod(0o700)
    with capturedLogs() as events:
        run = commands.run([str(script)], seconds=600)
        while not begun.exists():
            reactor.turn(0.01)
        run.cancel()
        with pytest.raises(CancelledError):
            reactor.wait(run)
        reactor.wait(commands.stop())
        gc.collect()
    # What other tests have left may say its word meanwhile.
    failures = [event["log_failure"] for event in events if "log_failure" in event]
    assert [one for one in failures if one.check(AlreadyCalledError)] == []
    assert [one for one in failures if "cancelled-one" in one.getErrorMessage()] == []


def test_more_than_the_most_wait_for_their_turn(
    tmp_path: Path, reactor: PumpedReactor, commands: Commands
) -> None:
    """One beyond the limit begins when another has ended."""
    gate = tmp_path / "gate"
    program = (
        "import os, sys, time\n"
        f"open(os.path.join({str(tmp_path)!r}, sys.argv[1]), 'w').close()\n"
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    )
    runs = [
        commands.run([*python(program), f"begun-{number}"], seconds=100)
        for number in range(limits.MAX_COMMANDS + 1)
    ]
    while len(list(tmp_path.glob("begun-*"))) < limits.MAX_COMMANDS:
        reactor.turn(0.01)
    assert len(list(tmp_path.glob("begun-*"))) == limits.MAX_COMMANDS
    gate.touch()
    for run in runs:
        reactor.wait(run)
    assert len(list(tmp_path.glob("begun-*"))) == limits.MAX_COMMANDS + 1
