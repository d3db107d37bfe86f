"""Commands before a node that records: what they ask, what they print, how they end."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace

import pytest
from fake_node import a_peer, disk_full
from twisted.internet.defer import Deferred

from hyperbloom.addresses import Address
from hyperbloom.api.http.access import Access
from hyperbloom.cli import output
from hyperbloom.client.client import Client
from hyperbloom.invitation import Invitation, decode_invitation, encode_invitation
from hyperbloom.keys import Identity
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.trust import issue_link, parse_link, verify_chain

FRIEND = Identity(b"f" * 32)
OTHER = Identity(b"o" * 32)
FRIEND_KEY = FRIEND.public_key.hex()
OTHER_KEY = OTHER.public_key.hex()
FAR = 4_000_000_000.0


# put, get, has, count


def test_put(node, served):
    assert node.out("put", "b", "a", "b") == "2 new, 1 known in own\n"
    where = {"feed": served.node.own.key.hex(), "name": "own"}
    assert json.loads(node.out("put", "a", "c", "--json")) == {"new": 1, "known": 1, **where}
    assert node.out("put", "--hex", "00ff", "0A") == "2 new, 0 known in own\n"
    assert served.node.own.ordered == [b"\0\xff", b"\n", b"a", b"b", b"c"]


def test_values_that_are_not_utf8_pass_unchanged(node, served):
    text = os.fsdecode(b"\xff\xfea")
    node.out("put", text)
    assert served.node.own.ordered == [b"\xff\xfea"]
    assert node("get").stdout_bytes == b"\xff\xfea\n"
    assert node("has", text).stdout == "yes\n"


def test_options_end_at_two_dashes(node, served):
    node.out("put", "--", "--hex", "-c")
    assert served.node.own.ordered == [b"--hex", b"-c"]


def test_get(node, served):
    node.out("put", "a", "b", "c", "d")
    assert node.out("get") == "a\nb\nc\nd\n"
    assert node.out("get", "--start", "b", "--end", "d") == "b\nc\n"
    assert node.out("get", "--limit", "3", "--start", "b") == "b\nc\nd\n"
    assert node.out("get", "--limit", "0") == ""
    assert node.out("get", "--hex", "--start", "63") == "63\n64\n"
    assert json.loads(node.out("get", "--json", "--limit", "2")) == {"values": ["61", "62"]}
    assert json.loads(node.out("get", "--json", "--start", "x")) == {"values": []}


def test_get_in_pages(node, served):
    values = [b"%06d" % number for number in range(25_000)]
    served.call(served.node.own.insert, values)
    assert node("get").stdout_bytes == b"".join(value + b"\n" for value in values)
    assert len([call for call in served.node.calls if call[0] == "read"]) == 3
    form = json.loads(node.out("get", "--json", "--limit", "24999"))
    assert form["values"] == [value.hex() for value in values[:24_999]]


def test_get_has_a_light_node_ask_its_peers_first(node, served):
    served.call(served.node.add, FeedSettings(key=OTHER.public_key, alias="o", mode="light"))
    node.out("get", "--feed", "o", "--start", "a", "--limit", "3", "--timeout", "2s")
    assert served.node.calls == [("fetch", b"a", None, 3, 1.6), ("read", b"a", None, 3)]
    served.node.calls.clear()
    node.out("get", "--feed", "o", "--local")
    assert [call[0] for call in served.node.calls] == ["read"]


def test_has(node, served):
    node.out("put", "a", "b")
    assert node("has", "a").exit_code == 0
    assert node("has", "a").stdout == "yes\n"
    missing = node("has", "a", "x", "b")
    assert (missing.exit_code, missing.stdout) == (1, "yes\ta\nno\tx\nyes\tb\n")
    in_json = node("has", "61", "78", "--hex", "--json")
    assert in_json.exit_code == 1
    assert json.loads(in_json.stdout) == {"all": False, "has": [True, False]}
    assert node("has", "b", "--json").exit_code == 0


def test_count(node, served):
    node.out("put", "a", "bc")
    assert node.out("count") == "2\n"
    form = json.loads(node.out("count", "--json"))
    digest = served.node.own.record().digest.hex()
    assert form == {"count": 2, "bytes": 3, "digest": digest, "digest_left": 0}


def test_a_digest_that_is_being_computed(node, served):
    node.out("put", *map(str, range(200)))
    served.node.own.digest_left = 77
    form = json.loads(node.out("count", "--json"))
    assert (form["digest"], form["digest_left"]) == (None, 77)
    assert "\towner\tcomputed to 61 %\n" in node.out("status")


def test_more_values_than_one_request_takes(node, served):
    values = [f"{number:05d}" for number in range(12_000)]
    assert node.out("put", *values) == "12000 new, 0 known in own\n"
    assert [call[2] for call in served.node.calls] == [5_000, 5_000, 2_000]
    assert node("has", *values[:11_000]).exit_code == 0


def test_what_was_put_before_it_failed_is_told(node, served):
    def fail_later(values):
        served.node.own.failure = disk_full() if len(served.node.calls) else None
        return insert(values)

    insert, served.node.own.insert = served.node.own.insert, fail_later
    result = node("put", *[str(number) for number in range(6_000)])
    assert result.exit_code == 7
    assert result.stdout == ""
    assert result.stderr == (
        "hyperbloom: stored before it stopped: 5000 new, 0 known in own; what follows is about the "
        "values behind these\n"
        "hyperbloom: the disk is full; make room\n"
    )


# What the node refuses


@pytest.mark.parametrize("command", ["put", "has"])
def test_an_unknown_feed(node, command):
    assert node.refusal(8, command, "a", "--feed", "nobody").startswith("there is no feed 'nobody'")


def test_not_trusted(node):
    node.out("feed", "join", OTHER_KEY, "--alias", "o")
    for arguments in (
        ["put", "a"],
        ["trust", "issue", FRIEND_KEY],
        ["invite", FRIEND_KEY],
    ):
        assert "no chain of links" in node.refusal(5, *arguments, "--feed", "o")


def test_an_empty_value(node):
    assert "at least one byte" in node.refusal(1, "put", "")


def test_an_unexpected_error_of_the_node(node, served):
    served.node.own.failure = RuntimeError("secret")
    assert node.refusal(70, "put", "a") == (
        "the node met an unexpected error; its log has the details"
    )


def test_a_node_that_hangs(node, served):
    never: Deferred = Deferred()
    served.node.own.insert = lambda values: never
    assert "did not answer within 0.3 s" in node.refusal(6, "put", "a", "--timeout", "0.3")
    assert "did not answer within 0.3 s" in node.refusal(6, "--timeout", "0.3s", "put", "a")


# which feed


def test_what_writes_says_where(node, served):
    served.call(served.node.add, FeedSettings(key=OTHER.public_key))
    one = issue_link(OTHER, served.node.identity.public_key, expires=FAR, nonce=bytes(32))
    node.out("trust", "add", OTHER_KEY, one.to_bytes().hex())
    short = OTHER_KEY[:12]
    assert node.out("put", "a", "--feed", OTHER_KEY) == f"1 new, 0 known in {short}\n"
    served.node.feeds[OTHER.public_key].settings = FeedSettings(key=OTHER.public_key, alias="o")
    assert node.out("put", "b", "--feed", OTHER_KEY) == "1 new, 0 known in o\n"
    assert node.out("forget", "a", "--feed", "o").startswith("0 forgotten in o, 0 bytes\n")
    where = {"feed": OTHER_KEY, "name": "o"}
    for command in (["forget", "a"], ["trust", "issue", FRIEND_KEY], ["invite", FRIEND_KEY]):
        form = json.loads(node(*command, "--feed", "o", "--json").stdout)
        assert {name: form[name] for name in where} == where
    assert "the invitation is to own" in node("invite", FRIEND_KEY).stderr


def test_one_put_goes_to_one_feed(node, served):
    """Though another is the default when its second part comes."""
    served.call(served.node.add, FeedSettings(key=OTHER.public_key, alias="o"))
    resolve, asked = served.node.resolve, []

    def moving(name):
        asked.append(name)
        return resolve("o" if name is None and len(asked) > 1 else name)

    served.node.resolve = moving
    values = map(str, range(6_000))
    assert node.out("put", *values) == "6000 new, 0 known in own\n"
    assert asked == [None, served.node.own.key.hex()]


# watch


def test_watch(node, served):
    node.out("put", "old")
    served.thread.reactor.callFromThread(
        served.thread.reactor.callLater, 0.3, served.node.own.insert, [b"a", b"\xff", b"b"]
    )
    result = node("watch", "--count", "2", "--start", "b")
    assert (result.exit_code, result.stdout_bytes) == (0, b"\xff\nb\n")


def test_watch_what_is_there(node, served):
    node.out("put", "b", "a", "c")
    assert node.out("watch", "--existing", "--count", "2") == "b\na\n"
    assert node.out("watch", "--existing", "--count", "1", "--hex", "--end", "62") == "61\n"
    (line,) = node.out("watch", "--existing", "--count", "1", "--json").splitlines()
    assert json.loads(line) == {
        "seq": 1,
        "value": "62",
        "origin": served.node.identity.public_key.hex(),
        "origin_name": None,
        "received_at": 1.0,
    }


def test_watch_for_a_while(node):
    node.out("put", "a")
    result = node("watch", "--existing", "--timeout", "0.3s")
    assert (result.exit_code, result.stdout) == (6, "a\n")
    assert result.stderr == "hyperbloom: 1 value and no more came within 0.3 s\n"
    assert node.refusal(6, "watch", "--timeout", "0.2") == "no value came within 0.2 s"


# trust


def test_trust_issue_prints_the_link_and_nothing_else(node, served):
    out = node.out("trust", "issue", FRIEND_KEY, "--expires", "2h")
    assert re.fullmatch(r"[0-9a-f]{274}\n", out)
    link = parse_link(bytes.fromhex(out))
    assert link.public_key == FRIEND.public_key
    assert abs(link.expires - time.time() - 7_200) < 60
    chain = verify_chain(served.node.own.key, [bytes.fromhex(out)], now=time.time())
    assert chain.holder == FRIEND.public_key
    form = json.loads(node.out("trust", "issue", FRIEND_KEY, "--expires", "2097-01-01", "--json"))
    assert (form["expires"], form["name"]) == (4_007_836_800, "own")
    month = parse_link(bytes.fromhex(node.out("trust", "issue", FRIEND_KEY)))
    assert abs(month.expires - time.time() - 30 * 86_400) < 60


def test_a_link_that_ends_earlier_than_asked_is_remarked_on(node, served):
    node.out("feed", "join", OTHER_KEY)
    soon = time.time() + 3_600
    own = issue_link(OTHER, served.node.identity.public_key, expires=soon, nonce=bytes(32))
    node.out("trust", "add", OTHER_KEY, own.to_bytes().hex())
    result = node("trust", "issue", FRIEND_KEY, "--feed", OTHER_KEY, "--expires", "1d")
    assert result.exit_code == 0
    assert parse_link(bytes.fromhex(result.stdout)).expires == soon
    assert "because this node's own link ends then" in result.stderr


def test_trust_add(node, served):
    one = issue_link(served.node.identity, FRIEND.public_key, expires=FAR, nonce=bytes(32))
    two = issue_link(FRIEND, OTHER.public_key, expires=FAR, nonce=bytes(32))
    chain = [one.to_bytes().hex(), two.to_bytes().hex()]
    own = served.node.own.key.hex()
    out = node.out("trust", "add", own, *chain)
    assert out.startswith(f"{OTHER_KEY} may write until 2096-10-02 07:06 UTC (in ")
    form = json.loads(node.out("trust", "add", own, *chain, "--json"))
    assert form == {"holder": OTHER_KEY, "holder_name": None, "links": 2, "expires": FAR}
    forged = issue_link(OTHER, FRIEND.public_key, expires=FAR, nonce=bytes(32))
    assert "signed" in node.refusal(5, "trust", "add", own, forged.to_bytes().hex())
    old = issue_link(served.node.identity, FRIEND.public_key, expires=5.0, nonce=bytes(32))
    assert "expired" in node.refusal(5, "trust", "add", own, old.to_bytes().hex())


def test_trust_list_and_show(node, served):
    node.out("trust", "issue", FRIEND_KEY, "--expires", "2097-01-01")
    own = served.node.own.key.hex()
    assert node.out("trust", "list").splitlines()[0] == "issuer\ttrusts\tuntil\tfirst seen"
    row = node.out("trust", "list").splitlines()[1].split("\t")
    assert row[:2] == [own, FRIEND_KEY]
    assert row[2].startswith("2097-01-01 00:00 UTC (in ")
    assert row[3] == "1970-01-01 00:00 UTC"
    head, owner, friend = (line.split("\t") for line in node.out("trust", "show").splitlines())
    assert head == ["who", "through", "links", "until", "name", "invited"]
    assert owner == [own, "owner", "0", "never expires", "-", "-"]
    assert friend[:3] == [FRIEND_KEY, own, "1"]
    assert friend[4:] == ["-", "1970-01-01 00:00 UTC"]
    form = json.loads(node.out("trust", "show", "--json"))
    assert form["feed"] == own
    assert [member["key"] for member in form["members"]] == [own, FRIEND_KEY]
    assert json.loads(node.out("trust", "list", "--json"))["links"][0]["trustee"] == FRIEND_KEY


# feed


def test_feed_join_list_and_leave(node, served):
    out = node.out(
        "feed", "join", OTHER_KEY, "--peer", "a.example:1", "--peer", "b.example:2",
        "--mode", "range", "--range", "a", "c", "--range", "x", "", "--alias", "o",
    )  # fmt: skip
    assert out == (
        "Joined o. NOT TRUSTED: this node may not write here; ask a member for an invitation.\n"
    )
    settings = FeedSettings(
        key=OTHER.public_key,
        alias="o",
        mode="range",
        ranges=((b"a", b"c"), (b"x", None)),
        peers=("a.example:1", "b.example:2"),
    )
    assert served.node.calls == [("join", settings)]
    head, own, other = (line.split("\t") for line in node.out("feed", "list").splitlines())
    assert head == ["feed", "alias", "mode", "values", "size", "trust"]
    assert own == [served.node.own.key.hex(), "own", "full", "0", "0", "owner"]
    assert other == [OTHER_KEY, "o", "range", "0", "0", "NOT TRUSTED"]
    assert json.loads(node.out("feed", "list", "--json"))["feeds"][1]["alias"] == "o"
    assert node.out("feed", "leave", "o", "--yes") == "Left o; its values are removed.\n"
    assert list(served.node.feeds) == [served.node.own.key]
    assert node.refusal(8, "feed", "leave", "o", "--yes").startswith("there is no feed 'o'")
    own = served.node.own.key.hex()
    assert "named in the configuration" in node.refusal(1, "feed", "leave", own, "--yes")


def test_joining_again_keeps_what_is_not_named(node, served):
    node.out(
        "feed", "join", OTHER_KEY, "--hex", "--mode", "range", "--range", "61", "62",
        "--peer", "a.example:1", "--no-issue-links",
    )  # fmt: skip
    node.out("feed", "join", OTHER_KEY, "--peer", "b.example:1", "--alias", "o")
    assert served.node.feeds[OTHER.public_key].settings == FeedSettings(
        key=OTHER.public_key,
        alias="o",
        mode="range",
        ranges=((b"a", b"b"),),
        peers=("a.example:1", "b.example:1"),
        issue_links=False,
    )
    node.out("feed", "join", OTHER_KEY, "--mode", "light")
    assert served.node.feeds[OTHER.public_key].settings.mode == "light"
    assert served.node.feeds[OTHER.public_key].settings.ranges == ()


UNASKED = [["forget", "--prefix", "b"], ["forget", "--start", ""], ["forget", "--by", FRIEND_KEY]]


@pytest.mark.parametrize("command", [["feed", "leave", "o"], *UNASKED], ids=" ".join)
def test_nothing_is_lost_where_nobody_can_be_asked(node, served, command):
    served.call(served.node.add, FeedSettings(key=OTHER.public_key, alias="o"))
    for typed in (None, "n\n", "y\n"):
        sentence = node.refusal(2, *command, stdin=typed)
        assert sentence.startswith("nothing was done")
        assert "give --yes" in sentence
    assert OTHER.public_key in served.node.feeds
    assert served.node.own.forgetting.steps == []
    assert node(*command, "--yes", stdin="").exit_code == 0


@pytest.mark.parametrize("more", [["a"], ["--prefix", "b", "--dry-run"], ["--undo", "--start", ""]])
def test_what_names_each_value_or_takes_nothing_away_does_not_ask(node, more):
    node.out("forget", *more)


@pytest.mark.parametrize("command", [["invite"], ["trust", "issue"]], ids=" ".join)
def test_a_key_that_nobody_can_hold_is_not_trusted(node, served, command):
    assert "look for a slip" in node.refusal(1, *command, "02" + "00" * 31)
    assert "0 keys are meant" in node.refusal(8, *command, FRIEND_KEY[:-2])
    assert "64 hex digits" in node.refusal(2, *command, "")
    assert served.node.own.raw_links == []


# invite and join


def test_an_invitation_is_one_line(node, served):
    result = node("invite", FRIEND_KEY, "--expires", "30d")
    assert result.exit_code == 0
    assert result.stderr == (
        "hyperbloom: the invitation is to own\n"
        "hyperbloom: the invitation names 127.0.0.1:4365, where this node listens; if others reach "
        "it elsewhere, give --address HOST:PORT, or set advertise under [node] in "
        f"{served.folder / 'hyperbloom.toml'}\n"
    )
    out = result.stdout
    assert re.fullmatch(r"hyperbloom:[A-Za-z0-9_-]+\n", out)
    invitation = decode_invitation(out)
    assert invitation.feed_key == served.node.own.key
    assert invitation.addresses == ("127.0.0.1:4365",)
    form = json.loads(node.out("invite", FRIEND_KEY, "--json", "--address", "a.example:1"))
    assert form["addresses"] == ["a.example:1"]
    assert form["trustee"] == FRIEND_KEY
    served.node.listens = []
    result = node("invite", FRIEND_KEY)
    assert result.exit_code == 0
    assert decode_invitation(result.stdout).addresses == ()
    assert "holds no address" in result.stderr


def test_an_invitation_with_an_address_that_was_named_needs_no_remark(node, served):
    (served.folder / "hyperbloom.toml").write_text('[node]\nadvertise = ["a.example:1"]\n')
    served.node.listens = ["a.example:1"]
    node.out("invite", FRIEND_KEY, "--feed", "own")


def test_the_file_wins_over_what_was_joined(node, served):
    config = served.folder / "hyperbloom.toml"
    config.write_text(f'[[feeds]]\nkey = "{OTHER_KEY}"\nalias = "o"\npeers = ["a.example:1"]\n')
    node.out("feed", "join", OTHER_KEY, "--alias", "o", "--peer", "a.example:1")
    result = node("feed", "join", OTHER_KEY, "--alias", "new", "--peer", "b.example:1")
    assert result.exit_code == 0
    assert result.stderr == (
        f"hyperbloom: {config} names this feed too, and what it says of alias, peers wins at the "
        "next start; change it there to keep what was said now\n"
    )
    link = issue_link(OTHER, served.node.identity.public_key, expires=FAR, nonce=bytes(32))
    line = encode_invitation(Invitation(feed_key=OTHER.public_key, links=(link.to_bytes(),)))
    assert "says of alias, peers wins" in node("join", line, "--json").stderr


def test_join(node, served):
    link = issue_link(OTHER, served.node.identity.public_key, expires=FAR, nonce=bytes(32))
    line = encode_invitation(
        Invitation(feed_key=OTHER.public_key, links=(link.to_bytes(),), addresses=("127.0.0.1:9",))
    )
    assert node.out("join", line, "--alias", "o").startswith(
        "Joined o. This node may write until 2096-10-02 07:06 UTC (in "
    )
    assert node.out("put", "--feed", "o", "a") == "1 new, 0 known in o\n"
    assert node.out("join", "-", stdin=line + "\n").startswith("Joined o.")
    assert json.loads(node.out("join", line, "--json"))["key"] == OTHER_KEY
    other = issue_link(OTHER, FRIEND.public_key, expires=FAR, nonce=bytes(32))
    for_friend = encode_invitation(Invitation(feed_key=OTHER.public_key, links=(other.to_bytes(),)))
    assert f"is for {FRIEND_KEY}" in node.refusal(3, "join", for_friend)


# status, peers, snapshot, verify


def test_status(node, served):
    node.out("put", "a", "b")
    node.out("feed", "join", OTHER_KEY, "--alias", "o")
    old = issue_link(FRIEND, served.node.own.key, expires=5.0, nonce=bytes(32))
    node.out("feed", "join", FRIEND_KEY)
    served.node.feeds[FRIEND.public_key]._learn(FRIEND.public_key, old)
    own = served.node.own.key.hex()
    digest = served.node.own.record().digest.hex()
    assert node.out("status").splitlines() == [
        f"node\t{own}",
        "running\t9.9, 1d 1h",
        "listening\t127.0.0.1:4365",
        "reached at\t127.0.0.1:4365",
        "connections\t1",
        "discovery\toff",
        "store\t3.0 MiB used",
        "feed\talias\tmode\tvalues\tpeers\ttrust\tdigest",
        f"{own}\town\tfull\t2\t1\towner\t{digest}",
        f"{OTHER_KEY}\to\tfull\t0\t0\tNOT TRUSTED\t{'0' * 64}",
        f"{FRIEND_KEY}\t-\tfull\t0\t0\tEXPIRED\t{'0' * 64}",
        "own: its key is the node's own, so whoever knows the node's public key can read it; to "
        "move its values: `hyperbloom feed create NAME --from own`",
        "o: no chain of links leads from the feed to this node's key",
        f"{FRIEND_KEY[:12]}…: every link to this node's key has expired",
        "refused 192.0.2.9:1 1m 1s ago: a link of its chain has expired",
    ]
    assert json.loads(node.out("status", "--json"))["public_key"] == own
    trust = [line.split("\t")[5] for line in node.out("feed", "list").splitlines()[1:]]
    assert trust == ["owner", "NOT TRUSTED", "EXPIRED"]
    assert "EXPIRED: this node may write no more" in node.out("feed", "join", FRIEND_KEY)


@pytest.mark.parametrize(("days", "told"), [(6.5, "6d 12h"), (1, "1d"), (7.5, None)])
def test_status_says_when_a_link_ends_soon(node, served, days, told):
    node.out("feed", "join", OTHER_KEY, "--alias", "o")
    expires = time.time() + days * 86_400
    link = issue_link(OTHER, served.node.own.key, expires=expires, nonce=bytes(32))
    served.node.feeds[OTHER.public_key]._learn(OTHER.public_key, link)
    sentence = f"o: this node may write for {told} more; have its link renewed by who invited it"
    lines = node.out("status").splitlines()
    assert [line for line in lines if "may write for" in line] == ([sentence] if told else [])


def test_status_gives_a_link_for_a_browser(node, served):
    assert "set listen under [api]" in node.refusal(1, "status", "--web")
    own = {"clock": served.thread.reactor.seconds, "now": time.time}
    access = Access(Address("127.0.0.1", 4366), "token", **own)
    object.__setattr__(served.service.context, "access", access)
    url = node.out("status", "--web").strip()
    assert url.startswith("http://127.0.0.1:4366/#")
    assert access.claim(url.partition("#")[2])
    assert set(json.loads(node.out("status", "--web", "--json"))) == {"url", "code", "seconds"}


def test_status_says_why_no_peer_is_there(node, served):
    chained = issue_link(OTHER, served.node.own.key, expires=FAR, nonce=bytes(32))
    node.out("feed", "join", OTHER_KEY, "--alias", "o")
    served.node.feeds[OTHER.public_key]._learn(OTHER.public_key, chained)
    config = served.folder / "hyperbloom.toml"
    lonely = (
        "o: no peer is connected and none is named to dial: "
        f"`hyperbloom feed join {OTHER_KEY} --peer HOST:PORT -c {config}`"
    )
    assert lonely in node.out("status").splitlines()
    node.out("feed", "join", OTHER_KEY, "--peer", "a.example:1")
    assert "o: not connected yet; dialling a.example:1" in node.out("status").splitlines()
    served.node.problem = "a.example:1: Connection was refused by other side"
    line = "o: no peer; a.example:1: Connection was refused by other side"
    assert line in node.out("status").splitlines()


def test_who_was_refused_again_and_again_is_told_of_once(node, served):
    one = served.node.status().refusals[0]
    served.node.refusals = (
        *(replace(one, at=one.at - n, address=f"192.0.2.9:{n}") for n in range(300)),
        replace(one, at=one.at - 500, reason="it is slow\x1b[2J"),
    )
    assert [line for line in node.out("status").splitlines() if "refused" in line] == [
        "refused 192.0.2.9:0 1m 1s ago (300 times): a link of its chain has expired",
        r"refused 192.0.2.9:1 9m 21s ago: it is slow\x1b[2J",
    ]


def test_peers(node, served):
    head, peer = (line.split("\t") for line in node.out("peers").splitlines())
    names = ["address", "key", "feed", "way", "for", "got/sent", "synced", "by"]
    assert head == [*names, "in sync", "protected", "name"]
    own = served.node.own.key.hex()
    assert peer[:4] == ["192.0.2.7:4365", bytes(range(32)).hex(), own, "out"]
    by = "sketch, 200 differed, 283 symbols, 7.1 KiB"
    assert peer[4:] == ["1h 1m", "1234/5", "5s ago", by, "yes, 5s ago, digest", "yes", "-"]
    assert json.loads(node.out("peers", "--json"))["peers"][0]["values_in"] == 1_234


@pytest.fixture
def bare_peers(served):
    """A node with eleven peers, of which the stream with one is protected."""
    own = served.node.own.key
    served.node.connected = [
        a_peer(own, address=f"192.0.2.{number}:4365", protected=number == 10)
        for number in range(11)
    ]


def test_streams_that_are_not_protected_are_named(node, served, bare_peers, monkeypatch):
    remark = "own: not protected by noise: 10 of 11 streams (noise is prefer here); see "
    config = served.folder / "hyperbloom.toml"
    assert f"{remark}`hyperbloom peers -c {config}`" in node.out("status").splitlines()
    marks = [line.split("\t")[-2] for line in node.out("peers").splitlines()]
    assert marks == ["protected", *["no"] * 10, "yes"]
    shown = json.loads(node.out("peers", "--json"))["peers"]
    assert [peer["protected"] for peer in shown] == [False] * 10 + [True]
    monkeypatch.setattr(output.Output, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", "80")
    lines = node.out("peers").splitlines()
    assert max(map(len, lines)) <= 80
    told = " ".join(" ".join(lines[lines.index("") :]).split())
    assert told.startswith("Not protected by noise: 10 of 11 streams, which whoever knows the feed")
    assert told.endswith(": " + ", ".join(f"192.0.2.{n}:4365" for n in range(8)) + " and 2 more")
    del served.node.connected[:10]
    assert node.out("peers").splitlines()[-1] == "All streams are protected by noise."
    assert "protected" not in node.out("status")


def test_a_node_of_an_older_version_protects_nothing(node, served, monkeypatch):
    """A command may be newer than the node, which was not restarted yet."""
    one = a_peer(served.node.own.key).as_json()
    del one["protected"]
    monkeypatch.setattr(Client, "peers", lambda self: [{**one, "expires": None}])
    assert node.out("peers").splitlines()[1].split("\t")[-2:] == ["no", "-"]


def test_a_feeds_policy_of_noise_is_kept_until_another_is_said(node, served):
    node.out("feed", "join", OTHER_KEY, "--noise", "require")
    assert served.node.feeds[OTHER.public_key].settings.noise == "require"
    node.out("feed", "join", OTHER_KEY, "--alias", "o")
    assert served.node.feeds[OTHER.public_key].settings.noise == "require"
    assert node.refusal(1, "feed", "join", FRIEND_KEY, "--dialect", "draft", "--noise", "require")


@pytest.mark.parametrize("command", [["status"], ["peers"], ["trust", "show"], ["feed", "list"]])
def test_tables_for_people_fit_80_columns(node, served, monkeypatch, command):
    node.out("feed", "join", OTHER_KEY, "--alias", "a-rather-long-alias")
    node.out("trust", "issue", FRIEND_KEY)
    monkeypatch.setattr(output.Output, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", "80")
    lines = node.out(*command).splitlines()
    assert max(map(len, lines)) <= 80, "\n".join(lines)
    assert any("─" in line for line in lines)
    assert "a-rather-long-alias" in node.out("status")


def test_snapshot_and_verify(node, served, tmp_path):
    node.out("put", "a", "b")
    out = node.out("snapshot", "snap")
    assert out == f"1 feed with 2 values copied to {tmp_path / 'snap'}\n"
    assert served.node.calls[-1] == ("snapshot", tmp_path / "snap")
    assert "exists already; name a new folder" in node.refusal(1, "snapshot", str(tmp_path))
    assert node.refusal(1, "snapshot", "no/such") == (
        f"there is no folder {tmp_path / 'no'} to put the snapshot in; make it"
    )
    assert json.loads(node.out("snapshot", "s2", "--json"))["target"] == str(tmp_path / "s2")
    result = node("verify")
    assert (result.exit_code, result.stdout) == (1, "one value is twice in the log\n")
    result = node("verify", "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["values"] == 7


@pytest.mark.parametrize(
    "command",
    [
        "key", "put a", "get", "get --start x", "has a", "count", "trust list", "trust show",
        f"trust issue {FRIEND_KEY}", f"invite {FRIEND_KEY}", f"feed join {OTHER_KEY}", "feed list",
        "peers", "status", "snapshot s", "verify",
    ],
)  # fmt: skip
@pytest.mark.parametrize("peers", [0, 1])
def test_json_is_one_object_on_one_line(node, served, command, peers):
    del served.node.connected[peers:]
    result = node(*command.split(), "--json")
    assert result.exit_code in (0, 1)
    assert result.stdout.count("\n") == 1
    assert type(json.loads(result.stdout)) is dict


def test_a_command_that_fails_prints_nothing(node):
    for command in ("get", "count", "trust show", "watch"):
        node.refusal(8, *command.split(), "--feed", "nobody", "--json")


# trust deny, allow, denied


def test_a_key_is_denied_and_allowed(node, served):
    assert node.out("trust", "denied").splitlines() == ["key\tdenied since\twhy\tname"]
    assert node.out("trust", "deny", OTHER_KEY, "--reason", "spam") == f"{OTHER_KEY} is denied\n"
    assert node.out("trust", "deny", OTHER_KEY) == f"{OTHER_KEY} is denied, as it was before\n"
    (found,) = json.loads(node.out("trust", "denied", "--json"))["denied"]
    assert (found["key"], found["denied_at"]) == (OTHER_KEY, 1.0)
    assert json.loads(node.out("trust", "deny", FRIEND_KEY, "--json")) == {
        "key": FRIEND_KEY,
        "name": None,
        "new": True,
    }
    assert node.out("trust", "allow", OTHER_KEY) == f"{OTHER_KEY} is allowed\n"
    result = node("trust", "allow", OTHER_KEY)
    assert (result.exit_code, result.stdout) == (1, f"{OTHER_KEY} is not denied\n")
    assert list(served.node.denied_keys) == [FRIEND.public_key]


def test_an_invitation_through_a_denied_key_leaves_no_feed_behind(node, served):
    line = encode_invitation(
        Invitation(
            feed_key=FRIEND.public_key,
            links=(
                issue_link(FRIEND, served.node.own.key, expires=FAR, nonce=bytes(32)).to_bytes(),
            ),
            addresses=("192.0.2.1:4365",),
        )
    )
    node.out("trust", "deny", FRIEND_KEY)
    assert "denies" in node.refusal(5, "join", line)
    assert FRIEND.public_key not in served.node.feeds
