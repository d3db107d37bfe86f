"""Outputs: the file is as the feed is, the command is told of it, and what goes wrong is said."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from output_scene import OutputScene

from hyperbloom.integrations import outputs
from hyperbloom.integrations.integration import IntegrationFailed
from hyperbloom.integrations.limits import (
    FIRST_RETRY_SECONDS,
    LEFT_FEED_SECONDS,
    MAX_COMMANDS,
    MAX_FILE_WORK,
)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[OutputScene]:
    made = OutputScene(tmp_path, is_quick=True)
    yield made
    made.close()


@pytest.fixture
def real_scene(tmp_path: Path) -> Iterator[OutputScene]:
    """One in which processes write files."""
    made = OutputScene(tmp_path, is_quick=False)
    yield made
    made.close()


def hosts(*names: bytes) -> list[bytes]:
    return [b"0.0.0.0 " + name for name in names]


class Told:
    """A command that writes down what it finds, and fails while it is told to."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "told"
        self._failing = folder / "failing"
        program = (
            "import json, os, sys\n"
            "path = os.environ['HYPERBLOOM_PATH']\n"
            "keys = ('HYPERBLOOM_OUTPUT', 'HYPERBLOOM_PATH', 'HYPERBLOOM_FEED')\n"
            "line = json.dumps([open(path).read()] + [os.environ[key] for key in keys])\n"
            f"print(line, file=open({str(self._log)!r}, 'a'))\n"
            f"sys.exit('not now' if os.path.exists({str(self._failing)!r}) else 0)\n"
        )
        self.arguments = (sys.executable, "-S", "-c", program)

    def fail(self) -> None:
        self._failing.write_bytes(b"")

    def succeed(self) -> None:
        self._failing.unlink()

    @property
    def all(self) -> list[list[str]]:
        if not self._log.exists():
            return []
        return [json.loads(line) for line in self._log.read_text().splitlines()]

    @property
    def files(self) -> list[list[str]]:
        """What stood in the file each time, without what is before each name."""
        return [[line.split()[1] for line in told[0].splitlines()] for told in self.all]


@pytest.fixture
def told(tmp_path: Path) -> Told:
    return Told(tmp_path)


# The file


def test_the_file_is_as_the_feed_is(scene: OutputScene) -> None:
    scene.put(b"b.example", b"192.0.2.1")
    output = scene.begin(mode=0o600)
    assert scene.lines == hosts(b"b.example")
    assert scene.path.stat().st_mode & 0o7777 == 0o600
    scene.put(b"a.example")
    scene.settle()
    assert scene.lines == hosts(b"a.example", b"b.example")
    scene.forget(b"b.example")
    scene.settle()
    assert scene.lines == hosts(b"a.example")
    scene.restore(b"b.example")
    scene.settle()
    assert scene.lines == hosts(b"a.example", b"b.example")
    status = output.status()
    assert (status.state, status.problem, status.target) == ("idle", None, str(scene.path))
    assert status.feed == "names"
    assert dict(status.figures) == {
        "entries": 2,
        "bytes": 36,
        "left_out": 1,
        "left_out_of_another_kind": 1,
        "renders": 4,
        "changes": 4,
        "commands": 0,
        "command_failures": 0,
    }
    assert os.listdir(scene.path.parent) == [scene.path.name]


def test_figures_can_be_names_of_metrics(scene: OutputScene) -> None:
    scene.put(b"\xff", b"#", b"a")
    figures = scene.begin(format="lines").figures()
    assert (figures["left_out"], figures["left_out_no_utf_8"]) == (2, 1)
    assert [name for name in figures if not re.fullmatch("[a-z][a-z0-9_]*", name)] == []


def test_a_change_while_the_file_is_written_is_not_lost(real_scene: OutputScene) -> None:
    output = real_scene.begin()
    real_scene.put(b"a.example")
    real_scene.until(lambda: output.status().state == "working")
    real_scene.put(b"b.example")
    real_scene.settle()
    assert real_scene.lines == hosts(b"a.example", b"b.example")


def test_changes_that_come_thick_are_gathered(scene: OutputScene) -> None:
    output = scene.begin()
    for number in range(40):
        scene.put(b"a%d.example" % number)
    scene.settle()
    assert len(scene.lines) == 40
    assert output.figures()["renders"] == 2


def test_it_rests_twice_as_long_as_it_took(scene: OutputScene) -> None:
    output = scene.begin()
    scene.put(b"a.example")
    scene.until(lambda: output.status().state == "working")
    scene.clock.advance(100)
    scene.until(lambda: output.status().state != "working")
    scene.put(b"b.example")
    due = output.status().next_run
    assert due is not None
    wait = due - output.context.now()
    assert 190 < wait < 230
    scene.clock.advance(wait)
    scene.settle()
    assert scene.lines == hosts(b"a.example", b"b.example")


def test_a_run_that_finds_the_same_changes_nothing(scene: OutputScene) -> None:
    output = scene.begin()
    scene.put(b"a.example")
    scene.settle()
    before = scene.path.stat()
    scene.put(b"192.0.2.1")
    scene.settle()
    scene.done(output.run(force=True))
    after = scene.path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (output.figures()["renders"], output.figures()["changes"]) == (4, 2)
    scene.done(output.run())
    assert output.figures()["renders"] == 4


def test_a_range_and_a_prefix_are_held_to(scene: OutputScene) -> None:
    scene.put(b"aa", b"ab", b"ac", b"b")
    scene.begin(format="lines", start=b"ab", prefix=b"a")
    assert scene.lines == [b"ab", b"ac"]


def test_a_file_that_others_remove_or_change_is_written_anew(scene: OutputScene) -> None:
    scene.put(b"a.example")
    scene.begin()
    for spoil in (scene.path.unlink, lambda: scene.path.write_bytes(b"0.0.0.0 b.example\n")):
        spoil()
        scene.clock.advance(LEFT_FEED_SECONDS)
        scene.until(lambda: scene.path.exists() and scene.lines == hosts(b"a.example"))
        scene.settle()


def test_programs_that_take_their_time_keep_no_file_waiting(real_scene: OutputScene) -> None:
    sleeping = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
    slow = [real_scene.commands.run(sleeping, seconds=600) for _ in range(MAX_COMMANDS)]
    real_scene.put(b"a.example")
    real_scene.begin()
    assert real_scene.lines == hosts(b"a.example")
    for run in slow:
        run.addErrback(lambda _: None)
        run.cancel()


def test_so_many_files_are_written_at_a_time_and_no_more(real_scene: OutputScene) -> None:
    folder = real_scene.folder
    program = (
        f"import os, time; begun = os.path.join({str(folder)!r}, 'begun-%d' % os.getpid())\n"
        f"open(begun, 'x'); go = os.path.join({str(folder)!r}, 'go')\n"
        "while not os.path.exists(go): time.sleep(0.01)\n"
    )
    runs = [
        real_scene.commands.run((sys.executable, "-S", "-c", program), seconds=600, for_file=True)
        for _ in range(MAX_FILE_WORK + 1)
    ]

    def begun() -> int:
        return len(list(folder.glob("begun-*")))

    real_scene.until(lambda: begun() == MAX_FILE_WORK)
    for _ in range(20):
        real_scene.reactor.turn(0.01)
    assert begun() == MAX_FILE_WORK
    (folder / "go").touch()
    for run in runs:
        real_scene.done(run)
    assert begun() == MAX_FILE_WORK + 1


# Allow lists


def test_an_allow_list_is_read_anew_when_it_changes(scene: OutputScene, tmp_path: Path) -> None:
    scene.put(b"a.example", b"b.example")
    allow = tmp_path / "ours.txt"
    allow.write_bytes(b"a.example\n")
    output = scene.begin(allow=allow)
    assert scene.lines == hosts(b"b.example")
    for text, left in ((b"b.example\n", b"a.example"), (b"a.example\n", b"b.example")):
        allow.write_bytes(text)
        scene.clock.advance(LEFT_FEED_SECONDS)
        scene.until(lambda left=left: scene.lines == hosts(left))
        scene.settle()
    allow.unlink()
    scene.clock.advance(LEFT_FEED_SECONDS)
    scene.until(lambda: output.status().state == "failing")
    assert "cannot be read (No such file" in (output.status().problem or "")
    assert scene.lines == hosts(b"b.example")
    allow.write_bytes(b"")
    scene.pass_time(FIRST_RETRY_SECONDS)
    assert scene.lines == hosts(b"a.example", b"b.example")
    assert output.status().problem is None


def test_a_feed_of_allowed_values_is_followed_and_may_come_later(scene: OutputScene) -> None:
    scene.put(b"a.example", b"b.example")
    scene.put(b"a.example", feed="ours")
    scene.hidden.add("ours")
    output = scene.begin(allow_feed="ours")
    assert "the feed ours of `allow_feed` is not here" in (output.status().problem or "")
    assert not scene.path.exists()
    scene.hidden.clear()
    scene.pass_time(FIRST_RETRY_SECONDS)
    assert scene.lines == hosts(b"b.example")
    scene.put(b"b.example", feed="ours")
    scene.settle()
    assert scene.lines == []
    scene.forget(b"a.example", feed="ours")
    scene.settle()
    assert scene.lines == hosts(b"a.example")


# The command


def test_the_command_sees_the_whole_file_and_is_told_which(scene: OutputScene, told: Told) -> None:
    scene.put(b"a.example")
    output = scene.begin(command=told.arguments, delay=0.0)
    scene.put(b"b.example", b"c.example")
    scene.settle()
    assert told.files == [["a.example"], ["a.example", "b.example", "c.example"]]
    assert told.all[0][1:] == ["one", str(scene.path), "names"]
    scene.put(b"192.0.2.1")
    scene.settle()
    assert output.figures()["commands"] == 2, "the file did not change"


def test_it_runs_not_more_often_than_the_delay(scene: OutputScene, told: Told) -> None:
    output = scene.begin(command=told.arguments, delay=100.0)
    scene.put(b"a.example")
    scene.settle()
    scene.put(b"b.example")
    scene.settle()
    assert (told.files, scene.lines) == ([[]], hosts(b"a.example", b"b.example"))
    status = output.status()
    assert status.problem is None
    assert status.next_run is not None
    assert 50 < status.next_run - output.context.now() <= 100
    scene.pass_time(100)
    assert told.files == [[], ["a.example", "b.example"]]
    scene.pass_time(1_000)
    assert len(told.all) == 2


def test_a_command_that_fails_is_run_again_and_the_file_goes_on(
    scene: OutputScene, told: Told
) -> None:
    told.fail()
    output = scene.begin(command=told.arguments, delay=2.0)
    status = output.status()
    assert (status.state, status.failures) == ("failing", 1)
    assert "the file is up to date, but its command failed (" in (status.problem or "")
    assert "ended with 1: not now" in (status.problem or "")
    assert output.figures()["command_failures"] == 1
    # A change is in the file at once, and the command tried again once the delay is over.
    scene.put(b"a.example")
    scene.until(lambda: scene.lines == hosts(b"a.example"))
    assert output.status().state in ("failing", "working")
    told.succeed()
    scene.until(lambda: len(told.all) == 2)
    scene.settle()
    assert told.files == [[], ["a.example"]]
    assert (output.status().state, output.status().problem) == ("idle", None)


def test_without_a_change_it_is_run_again_by_itself(scene: OutputScene, told: Told) -> None:
    told.fail()
    output = scene.begin(command=told.arguments, delay=0.0)
    scene.pass_time(FIRST_RETRY_SECONDS)
    assert (len(told.all), output.status().failures) == (2, 2)
    told.succeed()
    scene.pass_time(2 * FIRST_RETRY_SECONDS)
    assert (len(told.all), output.status().state) == (3, "idle")
    assert output.figures()["renders"] == 1, "the file was there"


def test_one_that_takes_too_long_is_ended_and_has_failed(scene: OutputScene) -> None:
    program = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
    output = scene.begin(command=program, timeout=0.2)
    assert "it took longer than 0.2 s" in (output.status().problem or "")


def test_a_command_that_is_not_there_is_a_failure(scene: OutputScene) -> None:
    output = scene.begin(command=("/nowhere/reload",))
    assert "reload cannot be started: No such file" in (output.status().problem or "")
    assert scene.lines == []


def test_force_runs_the_command_though_nothing_changed(scene: OutputScene, told: Told) -> None:
    output = scene.begin(command=told.arguments, delay=1_000.0)
    scene.done(output.run())
    assert len(told.all) == 1
    scene.done(output.run(force=True))
    assert len(told.all) == 2
    told.fail()
    with pytest.raises(IntegrationFailed, match="not now"):
        scene.done(output.run(force=True))
    told.succeed()
    scene.pass_time(1_000)
    assert len(told.all) == 4, "it had failed, so it is owed"


# After another start


def test_a_new_start_tells_nobody_what_was_told(scene: OutputScene, told: Told) -> None:
    scene.put(b"a.example")
    scene.begin(command=told.arguments)
    scene.stop()
    scene.begin(command=told.arguments)
    assert len(told.all) == 1
    scene.stop()
    scene.put(b"b.example")
    scene.begin(command=told.arguments)
    assert told.files[1:] == [["a.example", "b.example"]]
    scene.stop()
    scene.begin(command=(*told.arguments, "another"))
    assert len(told.all) == 3, "another command was never told"


def test_a_command_that_failed_or_was_cut_off_is_run_at_the_next_start(
    scene: OutputScene, told: Told
) -> None:
    told.fail()
    scene.begin(command=told.arguments)
    scene.stop()
    told.succeed()
    scene.begin(command=told.arguments)
    assert len(told.all) == 2
    # As a kill leaves it: the file is in place, and nothing else has happened.
    scene.stop()
    scene.put(b"a.example")
    scene.begin()
    scene.stop()
    scene.begin(command=told.arguments)
    assert told.files[2:] == [["a.example"]]


def test_a_file_that_was_another_one_in_between_is_told_again(
    scene: OutputScene, told: Told
) -> None:
    scene.put(b"a.example")
    scene.begin(command=told.arguments, delay=0.0)
    told.fail()
    scene.put(b"b.example")
    scene.until(lambda: len(told.all) == 2)
    scene.forget(b"b.example")
    scene.until(lambda: scene.lines == hosts(b"a.example"))
    scene.stop()
    told.succeed()
    before = len(told.all)
    scene.begin(command=told.arguments, delay=0.0)
    assert told.files[before:] == [["a.example"]]


# What can be wrong


def test_a_folder_that_is_not_there_is_said_and_tried_again(scene: OutputScene) -> None:
    scene.put(b"a.example")
    scene.path.parent.rmdir()
    output = scene.begin()
    assert "out is not there; make it" in (output.status().problem or "")
    assert output.status().state == "failing"
    scene.put(b"b.example")
    scene.clock.advance(1)
    assert output.status().runs == 1, "what failed waits for its time"
    scene.path.parent.mkdir()
    scene.pass_time(FIRST_RETRY_SECONDS)
    assert scene.lines == hosts(b"a.example", b"b.example")
    assert (output.status().state, output.status().problem) == ("idle", None)


def test_a_link_at_the_path_is_not_followed(scene: OutputScene) -> None:
    other = scene.path.parent / "other"
    other.write_bytes(b"mine")
    scene.path.symlink_to(other)
    output = scene.begin()
    assert "is a symbolic link" in (output.status().problem or "")
    assert other.read_bytes() == b"mine"


def test_a_process_that_dies_leaves_the_old_file(
    real_scene: OutputScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_scene.put(b"a.example")
    output = real_scene.begin()
    dying = (sys.executable, "-S", "-c", "import os, signal; os.kill(os.getpid(), 9)")
    monkeypatch.setattr(outputs, "RENDERING", dying)
    real_scene.put(b"b.example")
    real_scene.settle()
    problem = output.status().problem or ""
    assert "the process that writes the file failed (" in problem
    assert "was ended by SIGKILL" in problem
    assert real_scene.lines == hosts(b"a.example")


def test_one_that_takes_for_ever_is_ended(
    real_scene: OutputScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "RENDERING_SECONDS", 0.2)
    sleeping = (sys.executable, "-S", "-c", "import time; time.sleep(600)")
    monkeypatch.setattr(outputs, "RENDERING", sleeping)
    output = real_scene.begin()
    assert "it took longer than 0.2 s" in (output.status().problem or "")


def test_what_a_stop_cuts_off_leaves_the_old_file(real_scene: OutputScene) -> None:
    real_scene.put(b"a.example")
    output = real_scene.begin()
    real_scene.put(b"b.example")
    real_scene.until(lambda: output.status().state == "working")
    real_scene.stop()
    assert real_scene.lines == hosts(b"a.example")
    real_scene.begin()
    assert real_scene.lines == hosts(b"a.example", b"b.example")
    assert os.listdir(real_scene.path.parent) == [real_scene.path.name]
