"""`trust renew`: whose link is renewed, for how long, and how the holder gets it."""

from __future__ import annotations

import json
import time

import pytest

from hyperbloom.cli.commands.renew import renew
from hyperbloom.keys import Identity
from hyperbloom.trust import issue_link, parse_link

DAY = 86_400.0
SOON, LATER, OTHER = (Identity(bytes([number]) * 32) for number in (71, 72, 73))


@pytest.fixture
def invited(node, served):
    """The node's own feed, on which one link ends soon and one does not."""
    feed = served.node.own
    feed.issue_link(SOON.public_key, expires=time.time() + 3 * DAY)
    feed.issue_link(LATER.public_key, expires=time.time() + 20 * DAY)
    return feed


def until(feed, key: Identity) -> float:
    """Seconds until the longest link of the node to a key ends."""
    own = [link.expires for link in feed.raw_links if link.trustee == key.public_key]
    return max(own) - time.time()


def test_a_link_is_renewed_for_as_long_as_is_said(node, invited):
    result = node("trust", "renew", LATER.public_key.hex(), "--expires", "90d")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(f"{LATER.public_key.hex()} may write until ")
    assert result.stdout.endswith(" (in 90d)\n")
    assert "it is not connected; this node sends it the new link when it is" in result.stderr
    assert until(invited, LATER) == pytest.approx(90 * DAY, abs=60)
    assert until(invited, SOON) == pytest.approx(3 * DAY, abs=60)


def test_without_a_time_it_holds_as_long_as_the_old_one_was_issued_for(node, invited):
    record = next(one for one in invited.raw_links if one.trustee == SOON.public_key)
    issued_for = record.expires - record.first_seen / 1e6
    form = json.loads(node.out("trust", "renew", SOON.public_key.hex(), "--json"))
    (one,) = form["renewed"]
    assert one["key"] == SOON.public_key.hex()
    assert one["expires"] - time.time() == pytest.approx(issued_for, abs=60)
    assert one["before"] == record.expires
    assert one["handed_over"] == "when-it-connects"
    link = parse_link(bytes.fromhex(one["link"]))
    assert (link.public_key, link.expires) == (SOON.public_key, one["expires"])


def test_all_that_end_soon_are_renewed_and_only_these(node, invited):
    form = json.loads(node.out("trust", "renew", "--all-expiring", "--expires", "30d", "--json"))
    assert [one["key"] for one in form["renewed"]] == [SOON.public_key.hex()]
    more = ("--within", "21d", "--expires", "60d", "--json")
    form = json.loads(node.out("trust", "renew", "--all-expiring", *more))
    assert len(form["renewed"]) == 1, "the first holds for 30 days now"
    assert form["renewed"][0]["key"] == LATER.public_key.hex()
    again = node("trust", "renew", "--all-expiring")
    assert (again.exit_code, again.stdout) == (0, "No link of this node ends within 7d.\n")


def test_what_may_only_shorten_a_way_is_left_to_who_opened_it(node, invited):
    link = issue_link(SOON, OTHER.public_key, expires=time.time() + 2 * DAY, nonce=bytes(32))
    invited._learn(SOON.public_key, link)
    invited.issue_link(OTHER.public_key, expires=time.time() + 2 * DAY)
    form = json.loads(node.out("trust", "renew", "--all-expiring", "--expires", "30d", "--json"))
    assert [one["key"] for one in form["renewed"]] == [SOON.public_key.hex()]
    named = node("trust", "renew", OTHER.public_key.hex(), "--expires", "30d")
    assert named.exit_code == 0, "by name it is"


def test_a_key_that_this_node_has_not_invited(node, invited):
    said = node.refusal(1, "trust", "renew", OTHER.public_key.hex())
    assert said.startswith(f"this node has issued no link to {OTHER.public_key.hex()}")


def test_a_key_may_be_named_by_its_first_digits(node, served, invited):
    served.node.names.seen.add(SOON.public_key)
    form = json.loads(node.out("trust", "renew", SOON.public_key.hex()[:16], "--json"))
    assert form["renewed"][0]["key"] == SOON.public_key.hex()


def test_what_the_node_refuses_is_said_and_the_others_are_renewed(node, invited, monkeypatch):
    invite = invited.invite

    def refused(trustee, *, expires):
        if trustee == SOON.public_key:
            raise ValueError("the feed holds as many links as it may")
        return invite(trustee, expires=expires)

    monkeypatch.setattr(invited, "invite", refused)
    words = ("--all-expiring", "--within", "21d", "--expires", "60d")
    result = node("trust", "renew", *words)
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{LATER.public_key.hex()} may write until ")
    assert f"{SOON.public_key.hex()}: the feed holds as many links as it may" in result.stderr
    said = node.refusal(1, "trust", "renew", SOON.public_key.hex())
    assert said == "the feed holds as many links as it may"


def test_one_or_all(node, invited):
    for words in ((), (SOON.public_key.hex(), "--all-expiring")):
        result = node("trust", "renew", *words)
        assert result.exit_code == 2
        assert "give either KEY or --all-expiring" in result.stderr
    assert renew.help
