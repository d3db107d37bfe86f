"""What an input puts and takes back, by a real store and a real feed."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import replace

import pytest
from input_scene import Place, values_of
from players import SlowWriter, fired, numbered
from sim import Network, pair
from twisted.internet.defer import Deferred

from hyperbloom.integrations.integration import IntegrationFailed
from hyperbloom.integrations.limits import FIRST_RETRY_SECONDS, WATCH_SECONDS
from hyperbloom.integrations.settings import IntegrationsSettings
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.feed.tombstones import make_tombstone
from hyperbloom.store import StoreFull

TEN = numbered(10)
URL = "https://lists.example/secret-token/list.txt?key=secret"


@pytest.fixture(autouse=True)
def unsynced(monkeypatch):
    """No power fails here: a disk that others use, too, would be waited for."""
    monkeypatch.setattr(os, "fsync", lambda number: None)


@pytest.fixture
def network(tmp_path):
    one = Network(tmp_path / "nodes", seed=1)
    (tmp_path / "nodes").mkdir()
    yield one
    one.close()


@pytest.fixture
def place(network, tmp_path):
    """The owner of a feed, whose tombstones are followed, with one input `a` of ten values."""
    owner = network.add("owner")
    made = Place(network, owner, owner.key, tmp_path / "data")
    made.follow("owner")
    made.list("a", *TEN)
    return made


def test_what_a_source_lists_is_put_and_what_is_gone_is_taken_back(place):
    place.start(place.settings("a"))
    assert place.values() == TEN
    assert place.figures("a") == {"values": 10, "new": 10, "put": 10}
    place.list("a", *TEN[1:], b"more")
    place.run("a")
    assert place.values() == sorted([*TEN[1:], b"more"])
    assert place.known("a") == {*TEN[1:], b"more"}
    feed, identity = place.feed_key, place.node.identity
    assert place.tombstones() == [make_tombstone(identity, feed, TEN[0])]
    figures = {"values": 10, "new": 1, "gone": 1, "put": 11, "taken_back": 1}
    assert place.figures("a") == figures
    status = place.status("a")
    assert (status.state, status.problem) == ("idle", None)
    assert status.target == str(place.source("a"))
    place.run("a")
    assert place.figures("a") == {"values": 10, "put": 11, "taken_back": 1}


def test_it_runs_every_so_often(place, network):
    place.start(place.settings("a", url=URL, every=60.0))
    assert place.status("a").state == "failing"
    place.reader.pages[URL] = TEN
    network.run(FIRST_RETRY_SECONDS + 1)
    assert place.values() == TEN
    place.reader.pages[URL] = [*TEN, b"more"]
    assert place.status("a").next_run == pytest.approx(network.now() + 60, abs=1)
    network.run(50)
    assert place.values() == TEN
    network.run(20)
    assert b"more" in place.values()


def test_of_a_url_the_status_names_the_host_alone(place):
    place.reader.pages[URL] = TEN
    place.start(place.settings("a", url=URL))
    assert place.status("a").target == "https://lists.example"
    place.reader.pages[URL] = []
    with pytest.raises(IntegrationFailed):
        place.run("a")
    assert "secret" not in str(place.status("a"))


def test_a_file_that_has_changed_is_read_soon_and_once_it_is_left_alone(place, network):
    place.start(place.settings("a", every=3_600.0))
    reads = place.reader.runs
    network.run(10 * WATCH_SECONDS)
    assert place.reader.runs == reads
    # While it grows it is not read.
    for length in range(1, 10):
        place.list("a", *TEN, b"x" * length)
        network.run(WATCH_SECONDS)
    assert place.reader.runs == reads
    network.run(2 * WATCH_SECONDS)
    assert place.reader.runs == reads + 1
    assert place.values() == sorted([*TEN, b"x" * 9])
    network.run(10 * WATCH_SECONDS)
    assert place.reader.runs == reads + 1


def test_a_file_that_is_gone_is_said_and_tried_again_when_it_is_back(place, network):
    place.start(place.settings("a"))
    place.source("a").unlink()
    network.run(3 * WATCH_SECONDS)
    status = place.status("a")
    assert status.state == "failing"
    assert "correct `path`" in status.problem
    assert place.values() == TEN
    place.list("a", *TEN, b"more")
    network.run(3 * WATCH_SECONDS)
    assert b"more" in place.values()
    assert place.status("a").problem is None


# What may be taken back


def test_where_no_tombstones_are_followed_what_is_gone_stays_and_is_counted(place):
    place.follow("off")
    place.start(place.settings("a"))
    place.list("a", *TEN[1:])
    place.run("a")
    assert place.values() == TEN
    assert place.tombstones() == []
    assert place.figures("a") == {"values": 9, "gone": 1, "put": 10, "gone_kept": 1}
    assert place.status("a").state == "idle"


def test_a_member_takes_nothing_back_for_nobody_would_follow_it(network, tmp_path):
    owner, member, feed = pair(network)
    place = Place(network, member, feed, tmp_path / "data")
    for node in (owner, member):
        node.feed(feed).settings = replace(node.feed(feed).settings, tombstones="owner")
    network.connect(member, owner, feed)
    fired(owner.feed(feed).insert([b"the owner's", b"of both"]))
    network.run(2)
    place.list("a", *TEN, b"of both")
    place.start(place.settings("a", max_shrink=0.5))
    network.run(2)
    kept = sorted([*TEN, b"of both", b"the owner's"])
    assert values_of(owner, feed) == kept
    place.list("a", *TEN[2:])
    place.run("a")
    network.run(5)
    assert values_of(owner, feed) == values_of(member, feed) == kept
    assert place.figures("a").items() >= {"gone_kept": 3}.items()


def test_what_others_brought_stays(place, network):
    fired(place.feed.values.accept([TEN[0]], b"x" * 32))
    place.start(place.settings("a"))
    place.list("a", *TEN[2:])
    place.run("a")
    assert place.values() == [TEN[0], *TEN[2:]]
    assert place.figures("a").items() >= {"kept_of_others": 1, "taken_back": 1}.items()


def test_what_another_input_of_the_feed_lists_stays_until_it_is_gone_there_too(place):
    place.list("b", *TEN[:5])
    place.start(place.settings("a"), place.settings("b"))
    place.list("a", *TEN[2:])
    place.run("a")
    assert place.values() == TEN
    assert place.figures("a")["kept_in_other_inputs"] == 2
    place.list("b", *TEN[1:5])
    place.run("b")
    assert place.values() == TEN[1:]
    # Both lack it at one time: who is first leaves it to the other.
    place.list("a", *TEN[3:])
    place.list("b", TEN[1], *TEN[3:5])
    place.run("a")
    place.run("b")
    assert place.values() == [TEN[1], *TEN[3:]]


def test_what_an_input_lists_that_is_configured_no_more_counts_no_more(place):
    place.list("b", *TEN[:5])
    a, b = place.settings("a"), place.settings("b")
    place.start(a, b)
    place.service.use(IntegrationsSettings(inputs=(a,)))
    place.list("a", *TEN[2:])
    place.run("a")
    assert place.values() == TEN[2:]


def test_a_value_that_comes_back_is_a_value_again(place, network):
    place.start(place.settings("a"))
    for _ in range(2):
        place.list("a", *TEN[1:])
        place.run("a")
        network.run(2)
        assert place.values() == TEN[1:]
        place.list("a", *TEN)
        place.run("a")
        network.run(2)
        assert place.values() == TEN
    assert len(place.tombstones()) == 1
    assert place.node.store.verify().problems == []


def test_what_somebody_has_forgotten_is_not_brought_back_by_a_list(place, network):
    fired(place.feed.insert([TEN[0], TEN[1]]))
    forget = place.feed.forgetting.forget
    fired(Deferred.fromCoroutine(forget([TEN[0]], erase=True)))
    fired(Deferred.fromCoroutine(forget([TEN[1]])))
    place.start(place.settings("a"))
    assert place.values() == TEN[2:]
    assert place.figures("a")["kept_forgotten"] == 2


# Held back


def test_a_source_that_shrinks_by_much_is_held_back_until_it_is_whole_again(place):
    place.start(place.settings("a"))
    place.list("a", *TEN[3:], b"new")
    with pytest.raises(IntegrationFailed, match=r"3 of 10 values .* --force"):
        place.run("a")
    assert place.values() == sorted([*TEN, b"new"])
    status = place.status("a")
    assert (status.state, status.problem is None) == ("held", False)
    # Again: what was put meanwhile is known, and is among what may not go.
    place.list("a", *TEN[3:])
    with pytest.raises(IntegrationFailed, match="4 of 11 values"):
        place.run("a")
    place.list("a", *TEN)
    place.run("a")
    assert place.values() == TEN
    assert (place.status("a").state, place.status("a").problem) == ("idle", None)
    assert place.known("a") == set(TEN)


def test_force_takes_a_source_as_it_is(place):
    place.start(place.settings("a"))
    place.list("a")
    with pytest.raises(IntegrationFailed, match="10 of 10"):
        place.run("a")
    place.run("a", force=True)
    assert place.values() == []
    assert place.status("a").state == "idle"
    assert len(place.tombstones()) == 10
    # Once: later it is held back as before.
    place.list("a", *TEN)
    place.run("a")
    place.list("a", TEN[0])
    with pytest.raises(IntegrationFailed, match="9 of 10"):
        place.run("a")


@pytest.mark.parametrize(
    ("before", "after", "max_shrink", "is_held"),
    [
        (4, 2, 0.25, True),
        (4, 3, 0.25, False),
        (3, 2, 0.25, False),
        (2, 1, 0.25, False),
        (1, 0, 0.25, True),
        (8, 6, 0.25, False),
        (8, 5, 0.25, True),
        (8, 7, 0.0, True),
        (8, 8, 0.0, False),
        (8, 1, 1.0, False),
        (8, 0, 1.0, False),
        (8, 0, 0.99, True),
    ],
)
def test_how_much_may_go(place, before, after, max_shrink, is_held):
    values = numbered(before)
    place.list("a", *values)
    place.start(place.settings("a", max_shrink=max_shrink))
    place.list("a", *values[before - after :])
    if is_held:
        with pytest.raises(IntegrationFailed, match="nothing is taken back"):
            place.run("a")
        assert place.values() == values
    else:
        place.run("a")
        assert place.values() == values[before - after :]


def test_what_is_held_back_is_read_again_as_often_as_ever_and_soon_after_a_change(place, network):
    place.start(place.settings("a", every=1_000.0))
    place.list("a")
    with pytest.raises(IntegrationFailed):
        place.run("a")
    reads = place.reader.runs
    network.run(990)
    assert place.reader.runs == reads
    network.run(20)
    assert place.reader.runs == reads + 1
    assert place.status("a").state == "held"
    place.list("a", *TEN)
    network.run(3 * WATCH_SECONDS)
    assert place.status("a").state == "idle"


# What is kept on disk


def test_an_etag_is_sent_with_what_is_known_of_the_same_source_alone(place, network):
    place.reader.pages[URL] = place.reader.pages[URL + "2"] = TEN
    a = place.settings("a", url=URL)
    place.start(a)

    def asked():
        place.run("a")
        return place.reader.asked[-1]

    etag = asked()
    assert etag is not None
    assert place.figures("a") == {"values": 10, "put": 10}
    place.stop()
    place.start(a)
    assert place.reader.asked[-1] == etag
    for other in ({"url": URL + "2"}, {"format": "csv", "column": "1"}):
        place.service.use(IntegrationsSettings(inputs=(replace(a, **other),)))
        network.clock.advance(0)
        assert place.reader.asked[-1] is None
        assert asked() == etag
    # What is held back is not what is known.
    place.reader.pages[URL] = []
    place.service.use(IntegrationsSettings(inputs=(a,)))
    network.clock.advance(0)
    for _ in range(2):
        with pytest.raises(IntegrationFailed, match="10 of 10"):
            place.run("a")
        assert place.reader.asked[-1] is None
    # Where nothing but remarks has changed, the new ETag is kept.
    place.reader.pages[URL] = TEN
    place.run("a")
    place.reader.pages[URL] = [b"# a remark", *TEN]
    assert asked() == etag
    assert asked() not in (None, etag)


@pytest.mark.parametrize("lost", ["state.json", "known"])
def test_one_of_the_two_files_counts_for_nothing_alone(place, lost):
    place.reader.pages[URL] = TEN
    place.start(place.settings("a", url=URL))
    (place.data / "inputs" / "a" / lost).unlink()
    place.run("a")
    assert place.reader.asked[-1] is None
    assert place.figures("a") == {"values": 10, "new": 10, "put": 10}
    place.reader.pages[URL] = TEN[1:]
    place.run("a")
    assert place.values() == TEN[1:]


def test_another_source_under_the_same_name_goes_on_from_what_is_known(place, network):
    place.start(place.settings("a"))
    place.reader.pages[URL] = [*TEN[1:], b"more"]
    place.service.use(IntegrationsSettings(inputs=(place.settings("a", url=URL),)))
    network.clock.advance(0)
    assert place.values() == sorted([*TEN[1:], b"more"])


def test_an_input_that_is_configured_no_more_leaves_its_values(place):
    place.start(place.settings("a"))
    place.service.use(IntegrationsSettings())
    assert place.values() == TEN
    assert place.known("a") == set(TEN)


def test_what_is_known_is_of_one_feed_and_of_one_life_of_it(network, tmp_path):
    owner, member, feed = pair(network)
    place = Place(network, member, feed, tmp_path / "data")
    place.list("a", *TEN)
    a = place.settings("a")
    place.start(a)
    # Another feed: all is new there, and nothing is taken back in the first.
    place.list("a", *TEN[1:])
    other = replace(a, feed=member.key.hex())
    place.service.use(IntegrationsSettings(inputs=(other,)))
    network.clock.advance(0)
    assert values_of(member, member.key) == TEN[1:]
    assert values_of(member, feed) == TEN
    place.service.use(IntegrationsSettings(inputs=(a,)))
    network.clock.advance(0)
    assert place.figures("a")["new"] == 9
    # Left and joined anew: the feed is empty, and all is put again.
    settings = member.feed(feed).settings
    fired(member.node.leave(feed))
    network.run(10)
    assert place.status("a").state == "waiting"
    fired(member.node.join(settings))
    owner.invite(feed, member)
    network.run(10)
    place.run("a")
    assert place.values() == TEN[1:]


def test_where_an_older_store_was_put_back_all_is_put_again(place, network, tmp_path):
    place.start(place.settings("a"))
    place.stop()
    place.node.store.snapshot(tmp_path / "snapshot")
    place.list("a", *TEN, b"more")
    place.start(place.settings("a"))
    assert b"more" in place.values()
    place.stop()
    place.node.node.stopService()
    place.node.store.close()
    for file in ("data.mdb", "lock.mdb"):
        (network.folder / "owner" / file).unlink(missing_ok=True)
    shutil.copy(tmp_path / "snapshot" / "data.mdb", network.folder / "owner" / "data.mdb")
    place.node = network.restart("owner")
    assert b"more" not in place.values()
    place.node.context.sync = replace(place.node.context.sync, jitter=0.0)
    place.start(place.settings("a"))
    assert b"more" in place.values()


# What can go wrong


def test_a_node_that_may_not_write_reads_nothing_and_says_so(network, tmp_path):
    owner, member, feed = pair(network)
    place = Place(network, member, feed, tmp_path / "data")
    place.list("a", *TEN)
    network.run(90_000, step=10_000)
    place.start(place.settings("a"))
    assert place.reader.runs == 0
    assert "ask a member for an invitation" in place.status("a").problem
    with pytest.raises(NotTrusted):
        place.run("a")
    owner.invite(feed, member)
    network.run(120)
    assert place.values() == TEN
    assert place.status("a").problem is None


def test_a_full_disk_loses_nothing(place, network):
    submit = place.node.context.writer.submit
    full = StoreFull("there is no room on the disk; make some")
    place.node.context.writer.submit = lambda op, done, **more: done(full)
    place.start(place.settings("a"))
    assert place.status("a").problem == "there is no room on the disk; make some"
    reads = place.reader.runs
    network.run(20)
    assert place.reader.runs == reads
    place.node.context.writer.submit = submit
    network.run(60)
    assert place.values() == TEN
    assert place.status("a").problem is None
    assert list((place.data / "inputs" / "a").glob("run-*")) == []


def test_values_longer_than_this_node_takes_are_left_out_and_counted(place):
    place.node.context.limits = replace(place.node.context.limits, value_bytes=10)
    place.list("a", *TEN, b"x" * 11)
    place.start(place.settings("a"))
    assert place.values() == TEN
    figures = {"values": 10, "new": 10, "put": 10, "left_out": 1, "left_out_too_long": 1}
    assert place.figures("a") == figures


def test_a_value_whose_tombstone_would_be_too_long_stays(place):
    long = b"x" * 200_000
    place.list("a", *TEN, long)
    place.start(place.settings("a"))
    place.list("a", *TEN)
    place.run("a")
    assert long in place.values()
    assert place.figures("a")["gone_kept"] == 1


@pytest.mark.parametrize(
    "output", [b"", b"no JSON", b"[]", b"{}", b'{"outcome": "else"}', b'{"outcome": "failed"}']
)
def test_a_reader_that_gives_no_answer(place, output):
    place.reader.output = output
    place.start(place.settings("a"))
    assert "no answer" in place.status("a").problem
    place.reader.output = None
    place.run("a")
    assert place.values() == TEN
    assert len(list((place.data / "inputs" / "a").iterdir())) == 2


def test_what_a_source_held_before_the_start_is_told_until_it_can_be_read(place):
    place.list("a", *TEN, b"x" * 270_000)
    a = place.settings("a")
    place.start(a)
    told = place.figures("a")
    place.stop()
    place.source("a").unlink()
    place.start(a)
    assert place.status("a").state == "failing"
    kept = ("values", "left_out", "left_out_too_long")
    assert place.figures("a") == {name: told[name] for name in kept}


def test_a_reader_that_is_killed(place):
    place.reader.killed = True
    place.start(place.settings("a"))
    assert "SIGKILL" in place.status("a").problem


def test_a_folder_that_cannot_be_written(place):
    place.data.mkdir()
    (place.data / "inputs").write_bytes(b"a file in the way")
    place.start(place.settings("a"))
    problem = place.status("a").problem
    assert str(place.data / "inputs") in problem
    assert "see that the node may write there" in problem


def test_stopping_amid_a_reading_ends_it(place, network):
    place.reader.hanging = []
    place.start(place.settings("a"))
    assert place.status("a").state == "working"
    (under_way,) = place.reader.hanging
    place.stop()
    assert under_way.called
    network.run(60)
    assert place.reader.runs == 1
    place.reader.hanging = None
    place.start(place.settings("a"))
    assert place.values() == TEN
    assert list((place.data / "inputs" / "a").glob("run-*")) == []


def test_stopping_waits_for_what_a_thread_does_in_the_folder(place, network):
    place.start(place.settings("a"))
    place.node.thread_seconds = 1.0
    place.one("a").run().addErrback(lambda _: None)
    stopped = place.service.stopService()
    assert not stopped.called
    network.run(3)
    assert stopped.called
    place.node.thread_seconds = None


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5])
def test_stopping_amid_a_write_leaves_the_feed_as_the_store_is(place, network, seconds):
    """The first write puts, the second one puts tombstones, the third one forgets."""
    place.start(place.settings("a"))
    context = place.node.context
    context.writer = SlowWriter(context.writer, network.clock)
    place.list("a", *TEN[1:], b"new")
    place.one("a").run().addErrback(lambda _: None)
    network.run(seconds)
    stopped = place.service.stopService()
    assert not stopped.called
    network.run(3)
    assert stopped.called
    record = place.feed.values.record()
    assert (place.feed.values.count, place.feed.values.size) == (record.count, record.bytes)
    assert place.feed.values.top_seq == record.top_seq
    context.writer = context.writer.inner
    place.start(place.settings("a"))
    assert place.values() == [b"new", *TEN[1:]]


def test_many_values_go_in_and_out_in_batches(place, network):
    many = numbered(20_000)
    random.Random(1).shuffle(many)
    place.list("a", *many)
    place.start(place.settings("a", max_shrink=1.0))
    assert place.values() == sorted(many)
    place.list("a", *many[15_000:])
    place.run("a")
    network.run(5)
    assert place.values() == sorted(many[15_000:])
    assert len(place.tombstones()) == 15_000
    assert place.node.store.verify().problems == []


def test_a_state_that_is_damaged_counts_for_nothing(place):
    place.start(place.settings("a"))
    state = place.data / "inputs" / "a" / "state.json"
    for text in ("", "[]", "{}", json.dumps({**json.loads(state.read_text()), "more": 1})):
        state.write_text(text)
        place.run("a")
        assert place.figures("a")["new"] == 10
        assert place.values() == TEN
