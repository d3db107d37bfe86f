"""Hooks tell what is new: in order, at least once, and no faster than they are asked to."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hook_scenes import HookScene, RealHookScene
from twisted.logger import capturedLogs

from hyperbloom.integrations.limits import FIRST_RETRY_SECONDS, HOOK_BATCH_BYTES, LEFT_FEED_SECONDS
from hyperbloom.replication.feed.tombstones import make_tombstone
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store import PutMeta, StoreFull


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[HookScene]:
    one = HookScene(tmp_path)
    yield one
    one.close()


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealHookScene]:
    one = RealHookScene(tmp_path)
    yield one
    one.close()


def test_it_begins_with_what_is_new(scene: HookScene) -> None:
    scene.put(b"old")
    hook = scene.start()
    assert hook.status().state == "idle"
    scene.put(b"b", b"a")
    assert scene.told() == [[b"b", b"a"]]
    assert hook.status().state == "working"
    scene.commands.last.end()
    status = hook.status()
    assert (status.state, status.target, status.runs) == ("idle", "bell", 2)
    assert status.figures == {
        "values_waiting": 0, "values_told": 2, "batches_told": 1, "values_skipped": 0,
    }  # fmt: skip


def test_it_begins_at_the_start_where_that_is_said(scene: HookScene) -> None:
    scene.put(b"old")
    scene.start(since="start")
    assert scene.told() == [[b"old"]]


def test_a_line_is_an_arrival_as_the_api_has_it(scene: HookScene) -> None:
    scene.start()
    tombstone = make_tombstone(scene.node.identity, scene.key, b"bad")
    scene.put(b"\xff\n", tombstone)
    first, second = scene.commands.last.lines
    assert first == {
        "seq": 1,
        "value": "ff0a",
        "origin": scene.key.hex(),
        "received_at": first["received_at"],
    }
    assert first["received_at"] == pytest.approx(scene.network.now())
    assert bytes.fromhex(second["value"]) == tombstone
    assert scene.commands.last.given.endswith(b"}\n")


def test_the_environment_names_hook_and_feed_but_no_key(scene: HookScene) -> None:
    scene.start(command=("bell", "-l"), timeout=7.0)
    scene.put(b"a")
    told = scene.commands.last
    assert (told.arguments, told.seconds) == (("bell", "-l"), 7.0)
    assert sorted(told.environment) == [
        "HYPERBLOOM_BATCH", "HYPERBLOOM_FEED", "HYPERBLOOM_HOOK", "HYPERBLOOM_LIFE",
    ]  # fmt: skip
    assert told.environment["HYPERBLOOM_HOOK"] == "bell"
    assert told.environment["HYPERBLOOM_FEED"] == scene.feed.log_name
    assert told.environment["HYPERBLOOM_BATCH"].endswith("-1-1")
    assert not any(scene.key.hex() in text for text in told.environment.values())


def test_a_stream_is_gathered(scene: HookScene) -> None:
    scene.start(delay=3.0)
    scene.put(b"1")
    scene.commands.last.end()
    for number in (b"2", b"3", b"4"):
        scene.put(number)
        scene.wait(0.5)
    assert scene.told() == [[b"1"]]
    scene.wait(2.0)
    assert scene.told() == [[b"1"], [b"2", b"3", b"4"]]
    scene.commands.last.end()
    scene.wait(10.0)
    scene.put(b"5")
    assert scene.told()[2:] == [[b"5"]]


def test_what_comes_while_it_is_told_is_told_behind_it(scene: HookScene) -> None:
    scene.start(delay=3.0)
    scene.put(b"1")
    scene.put(b"2")
    scene.wait(5.0)
    assert scene.told() == [[b"1"]]
    scene.commands.last.end()
    scene.clock.advance(0)
    assert scene.told() == [[b"1"], [b"2"]]


def test_one_beyond_the_batch_is_told_behind_it(scene: HookScene) -> None:
    scene.start(batch=3, delay=2.0)
    scene.put(b"1", b"2", b"3", b"4")
    assert scene.told() == [[b"1", b"2", b"3"]]
    scene.commands.last.end()
    scene.wait(1.5)
    assert len(scene.told()) == 1
    assert scene.hook.figures()["values_waiting"] == 1
    scene.wait(1.0)
    assert scene.told()[1:] == [[b"4"]]


def test_one_byte_beyond_the_most_is_told_behind_it(scene: HookScene) -> None:
    scene.start(delay=0.0)
    size = 128 * 1024
    parts = HOOK_BATCH_BYTES // size
    values = [bytes([number]) * size for number in range(parts - 1)]
    scene.put(*values, b"l" * size, b"m")
    assert scene.told() == [[*values, b"l" * size]]
    scene.commands.last.end()
    scene.clock.advance(0)
    assert scene.told()[1:] == [[b"m"]]
    scene.commands.last.end()
    # One byte more, and the last of them has no room any more.
    scene.put(*(value[:-1] + b"x" for value in values), b"n" * (size + 1))
    assert len(scene.commands.last.values) == parts - 1


def test_it_goes_on_behind_what_was_taken_when_the_node_begins_anew(scene: HookScene) -> None:
    scene.start()
    scene.put(b"1")
    scene.commands.last.end()
    scene.put(b"2")
    scene.restart()
    assert scene.told() == [[b"1"], [b"2"]]


def test_a_batch_that_was_under_way_is_told_again_as_it_was(scene: HookScene) -> None:
    scene.start(delay=0.0)
    scene.put(b"1", b"2")
    scene.put(b"3")
    scene.restart(delay=0.0)
    first, again = scene.commands.begun
    assert (first.given, first.environment) == (again.given, again.environment)
    again.end()
    scene.clock.advance(0)
    assert scene.told()[2:] == [[b"3"]]


def test_a_smaller_batch_holds_for_what_was_under_way_too(scene: HookScene) -> None:
    scene.start()
    scene.put(b"1", b"2")
    scene.commands.last.end("bell ended with 1")
    scene.start(batch=1, delay=0.0)
    assert scene.told()[1:] == [[b"1"]]
    scene.commands.last.end()
    scene.clock.advance(0)
    assert scene.told()[2:] == [[b"2"]]
    ids = [one.environment["HYPERBLOOM_BATCH"].split("-", 2)[2] for one in scene.commands.begun]
    assert ids == ["1-2", "1-1", "2-2"]


def test_what_fails_is_told_again_and_keeps_back_what_follows(scene: HookScene) -> None:
    hook = scene.start(delay=0.0)
    scene.put(b"1")
    scene.commands.last.end("bell ended with 3: no power")
    scene.put(b"2")
    status = hook.status()
    assert (status.state, status.failures) == ("failing", 1)
    assert (status.problem or "").startswith(
        "bell ended with 3: no power; the values with arrival numbers 1 to 1 and all behind"
    )
    assert status.figures["values_waiting"] == 2
    scene.wait(FIRST_RETRY_SECONDS - 1)
    assert len(scene.told()) == 1
    scene.wait(2)
    assert scene.told() == [[b"1"], [b"1"]]
    scene.commands.last.end()
    scene.clock.advance(0)
    assert scene.told()[2:] == [[b"2"]]
    scene.commands.last.end()
    assert hook.status().problem is None


def test_force_leaves_out_the_batch_that_fails_and_no_more(scene: HookScene) -> None:
    hook = scene.start(delay=0.0, batch=2)
    scene.put(b"1", b"2", b"3")
    scene.commands.last.end("bell ended with 1")
    done: list[Any] = []
    with capturedLogs() as events:
        hook.run(force=True).addCallback(done.append)
    assert done == [None]
    said = [event for event in events if "left out by force" in event["log_format"]]
    assert [(event["first"], event["last"], event["count"]) for event in said] == [(1, 2, 2)]
    scene.clock.advance(0)
    assert scene.told() == [[b"1", b"2"], [b"3"]]
    scene.commands.last.end()
    figures = hook.status().figures
    assert (figures["values_skipped"], figures["values_told"]) == (2, 1)


def test_force_leaves_nothing_out_where_nothing_fails(scene: HookScene) -> None:
    hook = scene.start()
    scene.put(b"1")
    scene.commands.last.end()
    hook.run(force=True)
    scene.wait(2.0)
    scene.put(b"2")
    assert scene.told() == [[b"1"], [b"2"]]


def test_what_was_forgotten_is_not_told(scene: HookScene) -> None:
    hook = scene.start(delay=0.0)
    scene.put(b"1", b"2", b"3")
    scene.put(b"4", b"5")
    scene.commands.last.end("bell ended with 1")
    scene.forget(b"2", b"5")
    scene.wait(FIRST_RETRY_SECONDS)
    assert scene.told()[1:] == [[b"1", b"3"]]
    scene.commands.last.end()
    scene.clock.advance(0)
    assert scene.told()[2:] == [[b"4"]]
    scene.commands.last.end()
    scene.wait(1.0)
    assert hook.figures()["values_waiting"] == 0


def test_a_batch_that_was_forgotten_whole_is_passed_over(scene: HookScene) -> None:
    scene.start(delay=0.0)
    scene.put(b"1", b"2")
    scene.put(b"3")
    scene.commands.last.end("bell ended with 1")
    scene.forget(b"1", b"2")
    scene.wait(FIRST_RETRY_SECONDS + 1)
    assert scene.told()[1:] == [[b"3"]]


def test_another_name_begins_anew(scene: HookScene) -> None:
    scene.start()
    scene.put(b"1")
    scene.commands.last.end("bell ended with 1")
    scene.start(name="gong")
    scene.put(b"2")
    assert scene.told()[1:] == [[b"2"]]
    assert (
        scene.commands.begun[0].environment["HYPERBLOOM_BATCH"][:16]
        != scene.commands.begun[1].environment["HYPERBLOOM_BATCH"][:16]
    )


def test_other_settings_of_the_same_name_go_on(scene: HookScene) -> None:
    scene.start()
    scene.put(b"1")
    scene.commands.last.end()
    scene.hook.stop()
    scene.put(b"2")
    scene.start(command=("gong",), since="start")
    assert scene.told() == [[b"1"], [b"2"]]
    assert scene.commands.last.arguments == ("gong",)


def test_another_feed_begins_anew(scene: HookScene) -> None:
    scene.start()
    scene.put(b"1", b"2", b"3")
    scene.commands.last.end()
    other = FeedSettings(key=b"o" * 32)
    joined: list[Any] = []
    scene.node.node.join(other).addCallback(joined.append)
    scene.start(feed=other.key.hex(), since="start")
    assert len(scene.told()) == 1
    feed = scene.node.feed(other.key)
    feed.values.insert([b"other"])
    scene.wait(1.0)
    assert scene.told()[1:] == [[b"other"]]
    assert scene.commands.last.environment["HYPERBLOOM_BATCH"].endswith("-1-1")


@pytest.mark.parametrize(("since", "told"), [("start", [[b"a"]]), ("now", [])])
def test_a_feed_that_was_left_and_joined_anew_begins_anew(
    scene: HookScene, since: str, told: list[list[bytes]]
) -> None:
    other = FeedSettings(key=b"o" * 32)
    scene.node.node.join(other)
    hook = scene.start(feed=other.key.hex(), since=since)
    scene.node.feed(other.key).values.insert([b"1", b"2"])
    scene.clock.advance(0)
    scene.commands.last.end()
    scene.node.node.leave(other.key)
    scene.wait(LEFT_FEED_SECONDS + 1)
    assert hook.status().state == "waiting"
    assert "is not here" in (hook.status().problem or "")
    scene.node.node.join(other)
    scene.node.feed(other.key).values.insert([b"a"])
    scene.wait(LEFT_FEED_SECONDS + 1)
    assert scene.told()[1:] == told


def test_a_feed_that_is_left_while_it_is_told_ends_nothing_else(scene: HookScene) -> None:
    other = FeedSettings(key=b"o" * 32)
    scene.node.node.join(other)
    hook = scene.start(feed=other.key.hex(), delay=0.0)
    feed = scene.node.feed(other.key)
    feed.values.insert([b"1"])
    scene.clock.advance(0)
    scene.node.node.leave(other.key)
    scene.commands.last.end()
    scene.wait(1.0)
    assert hook.status().failures == 0
    assert len(scene.told()) == 1


def test_nothing_is_told_before_the_store_knows_of_it(scene: HookScene) -> None:
    """What the store keeps when a batch begins is where that batch ends."""
    scene.start()
    scene.put(b"1", b"2")
    kept = json.loads(scene.node.store.get_meta("hook.bell") or b"")
    assert (kept["seq"], kept["until"]) == (0, 2)
    scene.commands.last.end()
    kept = json.loads(scene.node.store.get_meta("hook.bell") or b"")
    assert (kept["seq"], "until" in kept) == (2, False)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_full_disk_leaves_out_nothing(scene: HookScene, is_begun: bool) -> None:
    """Nothing is told that cannot be kept, and what was told is told again until it can."""
    hook = scene.start(delay=0.0)
    writer = scene.node.context.writer
    submit = writer.submit

    def refuse(op: Any, done: Any) -> None:
        done(StoreFull("no room on the disk")) if isinstance(op, PutMeta) else submit(op, done)

    def is_full(full: bool) -> None:
        writer.submit = refuse if full else submit  # type: ignore[method-assign]

    is_full(not is_begun)
    scene.put(b"1")
    is_full(True)
    if is_begun:
        scene.commands.last.end()
    assert len(scene.told()) == int(is_begun)
    assert hook.status().problem == "no room on the disk"
    is_full(False)
    scene.wait(FIRST_RETRY_SECONDS + 1)
    assert scene.told() == [[b"1"]] * (1 + is_begun)
    assert len({one.environment["HYPERBLOOM_BATCH"] for one in scene.commands.begun}) == 1
    scene.commands.last.end()
    assert (hook.status().problem, hook.figures()["values_waiting"]) == (None, 0)


def test_after_a_restore_the_same_numbers_are_another_batch(scene: HookScene) -> None:
    """They are of other values then, which a receiver must not take for those that it has."""
    scene.start()
    scene.put(b"1")
    store, aside = scene.network.folder / "node", scene.network.folder / "aside"
    scene.node.store.snapshot(aside)
    scene.put(b"2")
    scene.commands.last.end()
    scene.wait(2.0)
    scene.commands.last.end()
    gone = scene.commands.last.environment["HYPERBLOOM_BATCH"]
    scene.hook.stop()
    scene.node.node.stopService()
    scene.node.store.close()
    shutil.rmtree(store)
    shutil.copytree(aside, store)
    scene.restart()
    assert scene.told()[2:] == [[b"1"]]
    scene.commands.last.end()
    scene.put(b"other")
    scene.wait(2.0)
    assert scene.told()[3:] == [[b"other"]]
    again = scene.commands.last.environment["HYPERBLOOM_BATCH"]
    assert (again[16:], gone[16:]) == ("-1-2-2", "-1-2-2")
    assert again != gone


# Real programs

WRITER = """
import os, sys
with open(sys.argv[1], "ab") as file:
    file.write(sys.stdin.buffer.read())
sys.exit(int(os.path.exists(sys.argv[1] + ".broken")))
"""


def test_a_program_reads_lines_and_says_when_they_are_taken(
    real: RealHookScene, tmp_path: Path
) -> None:
    out, broken = tmp_path / "out", tmp_path / "out.broken"
    hook = real.start(command=(sys.executable, "-S", "-c", WRITER, str(out)), delay=0.0)
    real.put(b"1", b"2")
    real.until(lambda: hook.figures()["batches_told"] == 1)
    broken.touch()
    real.put(b"3")
    real.until(lambda: hook.status().problem is not None)
    broken.unlink()
    real.clock.advance(FIRST_RETRY_SECONDS)
    real.until(lambda: hook.figures()["batches_told"] == 2)
    values = [bytes.fromhex(json.loads(line)["value"]) for line in out.open()]
    assert values[:3] == [b"1", b"2", b"3"]
    assert set(values[3:]) == {b"3"}


def test_a_program_that_takes_too_long_has_not_taken_them(
    real: RealHookScene, tmp_path: Path
) -> None:
    wait = "import sys, time; time.sleep(600)"
    hook = real.start(command=(sys.executable, "-S", "-c", wait), timeout=1.0)
    real.put(b"1")
    real.until(lambda: hook.status().problem is not None)
    assert "it took longer than 1 s" in (hook.status().problem or "")
    assert hook.figures()["values_waiting"] == 1


def test_a_stop_ends_the_program(real: RealHookScene, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    hook = real.start(command=(sys.executable, "-S", "-c", program, str(begun)))
    real.put(b"1")
    real.until(begun.exists)
    real.reactor.wait(hook.stop())
    out = tmp_path / "out"
    real.start(command=(sys.executable, "-S", "-c", WRITER, str(out)))
    real.until(lambda: real.hook.figures()["batches_told"] == 1)
    assert json.loads(out.read_text())["seq"] == 1
