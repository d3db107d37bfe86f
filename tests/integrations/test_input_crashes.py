"""A node that is killed at any step of an input comes to the same end when it is back."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from input_scene import Place
from players import numbered
from sim import Network
from twisted.internet.defer import Deferred

from hyperbloom.integrations import input_folder
from hyperbloom.integrations.integration import IntegrationFailed

URL = "https://lists.example/list"
BEFORE = numbered(9)
AFTER = [*BEFORE[2:], b"new 1", b"new 2"]
#: What the source lists when the node is back.
BACK = {
    "the one before": BEFORE,
    "another": [*BEFORE[1:8], b"new 2", b"new 3"],
    "few, which are held back": AFTER[:3],
}


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """No power fails here: a disk that others use, too, would be waited for."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


class Killed(BaseException):
    """The process is gone."""


class Knife:
    """Kills at a step: of threads and of the writer, and of what is done in the file system."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = 0
        self.at: int | None = None
        self.has_cut = False
        for owner, name in (
            (os, "replace"),
            (os, "fsync"),
            (shutil, "rmtree"),
            (Path, "unlink"),
            (input_folder, "sync"),
        ):
            monkeypatch.setattr(owner, name, self.cutting(getattr(owner, name)))

    def cutting(self, call):
        def step(*arguments, **named):
            self.step()
            return call(*arguments, **named)

        return step

    def step(self) -> None:
        if self.at is not None and self.steps >= self.at:
            self.has_cut = True
            raise Killed
        self.steps += 1

    def arm(self, place: Place, at: int) -> None:
        """Kill at this step from now on."""
        self.steps, self.at, self.has_cut = 0, at, False
        context = place.node.context
        context.writer.submit = self.cutting(context.writer.submit)
        place.reader.run = self.cutting(place.reader.run)


def play(network, folder, knife, at, back):
    """From BEFORE to AFTER, killed at a step, and the node that is back after that."""
    owner = network.add("owner")
    place = Place(network, owner, owner.key, folder / "data")
    place.follow("owner")
    place.reader.pages[URL] = BEFORE
    a = place.settings("a", url=URL, max_shrink=0.5)
    knife.at = None
    place.start(a)
    assert place.values() == BEFORE
    knife.arm(place, at)
    place.reader.pages[URL] = AFTER
    one = place.one("a")
    run = Deferred.fromCoroutine(one.work(one.feed, force=False))
    run.addErrback(lambda failure: failure.trap(Killed, IntegrationFailed))
    knife.at = None
    # The process is gone, and with it what its clock would have called.
    one._started = False
    for timer in (one._timer, one._looking, one._watching):
        timer.set(None)
    sources = place.reader.pages
    again = Place(network, network.restart("owner"), owner.key, folder / "data")
    again.node.context.sync = replace(again.node.context.sync, jitter=0.0)
    again.follow("owner")
    again.reader.pages = sources
    sources[URL] = back
    again.start(a)
    return again


def check(place, back):
    expected = set(back)
    if back is BACK["few, which are held back"]:
        assert place.status("a").state == "held"
        with pytest.raises(IntegrationFailed, match="nothing is taken back"):
            place.run("a")
        place.run("a", force=True)
    assert place.status("a").problem is None
    assert set(place.values()) == expected == place.known("a")
    log = place.node.store.log_slice(place.feed_key, 0, limit=1_000, max_bytes=10**6).records
    assert max(Counter(record.value for record in log).values()) == 1
    assert len(place.tombstones()) <= len({*BEFORE, *AFTER, *back} - expected) + 2
    inside = sorted(path.name for path in (place.data / "inputs" / "a").iterdir())
    assert inside == ["known", "state.json"]
    assert place.node.store.verify().problems == []
    # The ETag goes with what is known.
    place.run("a")
    assert place.reader.asked[-1] is not None
    place.reader.pages[URL] = [*back, b"last"]
    place.run("a")
    assert set(place.values()) == {*expected, b"last"}


@pytest.mark.parametrize("back", BACK.values(), ids=BACK.keys())
def test_killed_at_any_step(tmp_path, monkeypatch, back):
    knife = Knife(monkeypatch)
    for at in itertools.count():
        folder = tmp_path / f"at-{at}"
        (folder / "nodes").mkdir(parents=True)
        network = Network(folder / "nodes", seed=1)
        place = play(network, folder, knife, at, back)
        check(place, back)
        place.stop()
        network.close()
        if not knife.has_cut:
            break
    assert at > 20
