"""Feeds that the node owns, over the API: made, taken over from files, handed over, copied."""

from __future__ import annotations

import time

import pytest

from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.keys import Identity, KeyFileError
from hyperbloom.replication.settings import FeedSettings


def kind_of(call) -> ProblemKind:
    with pytest.raises(Problem) as caught:
        call()
    return caught.value.kind


def test_a_feed_is_made_and_no_secret_comes_back(served):
    client = served.client()
    form = client.create_feed("words")
    pair = served.node.pairs[bytes.fromhex(form["key"])]
    assert (form["alias"], form["owner"], form["own"], form["trust"]) == (
        "words", True, False, "owner",
    )  # fmt: skip
    shown = str([form, client.feeds(), client.status(), client.members(feed="words")])
    assert pair.seed.hex() not in shown
    assert [feed["owner"] for feed in client.status()["feeds"]] == [True, True]


@pytest.mark.parametrize("alias", ["own", "", "a b", "ab" * 32])
def test_a_name_that_is_no_alias_is_refused(served, alias):
    assert kind_of(lambda: served.client().create_feed(alias)) is ProblemKind.BAD_REQUEST


def test_a_name_that_is_taken_is_refused(served):
    client = served.client()
    client.create_feed("words")
    assert kind_of(lambda: client.create_feed("words")) is ProblemKind.BAD_REQUEST
    assert kind_of(lambda: client.create_feed("x", dialect="3")) is ProblemKind.BAD_REQUEST


def test_a_key_file_that_does_not_do_is_said(served):
    served.node.ownership.failure = KeyFileError("the folder is open to others")
    client = served.client()
    assert kind_of(lambda: client.create_feed("words")) is ProblemKind.BAD_CONFIG
    assert kind_of(client.read_keys) is ProblemKind.BAD_CONFIG


def test_files_that_were_put_there_are_taken_over(served):
    pair = Identity(b"p" * 32)
    served.node.ownership.put_there.append(pair)
    client = served.client()
    assert [form["key"] for form in client.read_keys()] == [pair.public_key.hex()]
    assert client.read_keys() == []


def test_a_key_is_released_for_a_link(served):
    client = served.client()
    client.create_feed("words")
    expires = time.time() + 3_600
    assert client.release_key(feed="words", expires=expires)["expires"] == pytest.approx(expires)
    assert client.feed("words")["trust"] == "member"
    assert kind_of(lambda: client.release_key(feed="words", expires=expires)) is (
        ProblemKind.BAD_REQUEST
    )


def test_a_feed_whose_key_is_here_is_left_with_its_key(served):
    client = served.client()
    client.create_feed("words")
    assert kind_of(lambda: client.leave_feed("words")) is ProblemKind.BAD_REQUEST
    client.leave_feed("words", delete_key=True)
    assert kind_of(lambda: client.feed("words")) is ProblemKind.UNKNOWN_FEED


def test_values_are_copied_step_by_step(served):
    client = served.client()
    client.create_feed("words")
    client.put([b"c", b"a", b"b"], feed="own")
    steps = list(client.copy_values(source="own", feed="words"))
    assert [step["count"] for step in steps] == [2, 1]
    assert list(client.range(feed="words")) == [b"a", b"b", b"c"]
    assert sum(step["count"] for step in client.copy_values(source="own", feed="words")) == 3
    for source in ("words", "nobody"):
        assert kind_of(lambda: list(client.copy_values(source=source, feed="words"))) in (  # noqa: B023
            ProblemKind.BAD_REQUEST, ProblemKind.UNKNOWN_FEED,
        )  # fmt: skip


def test_own_names_nothing_where_no_feed_has_the_nodes_key(served):
    client = served.client()
    served.call(served.node.feeds.pop, served.node.identity.public_key)
    served.call(served.node.add, FeedSettings(key=bytes(32)))
    assert kind_of(lambda: client.feed("own")) is ProblemKind.UNKNOWN_FEED
