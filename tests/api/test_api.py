"""The API over a real Unix socket, before a node that records what it is asked."""

from __future__ import annotations

import itertools
import json
import math
import threading
import time

import pytest
from fake_node import disk_full
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from hyperbloom import __version__
from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.api.routes import ROUTES
from hyperbloom.client.client import Client, NodeTimeout
from hyperbloom.invitation import Invitation, decode_invitation, encode_invitation
from hyperbloom.keys import Identity
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.trust import (
    LINK_FORMAT_2,
    LINK_FORMAT_DRAFT,
    issue_link,
    parse_link,
    verify_chain,
)

FRIEND = Identity(b"f" * 32)
OTHER = Identity(b"o" * 32)
FAR = 4_000_000_000.0


def joined(pages):
    return list(itertools.chain.from_iterable(pages))


def problem(call):
    with pytest.raises(Problem) as caught:
        call()
    return caught.value


# The node


def test_ping(served):
    answer = served.client().ping()
    assert answer["version"] == __version__
    assert answer["identity"] == served.node.identity.public_key.hex()


def test_status_and_peers_hold_no_infinity(served):
    client = served.client()
    (feed,) = client.status()["feeds"]
    assert feed["chain_expires"] is None
    assert feed["key"] == served.node.own.key.hex()
    (peer,) = client.peers()
    assert peer["expires"] is None
    assert peer["address"] == "192.0.2.7:4365"


def test_snapshot_and_verify(served, tmp_path):
    client = served.client()
    form = client.snapshot(tmp_path / "snap")
    assert form["target"] == str(tmp_path / "snap")
    assert form["feeds"][0]["key"] == served.node.own.key.hex()
    assert served.node.calls == [("snapshot", tmp_path / "snap")]
    taken = problem(lambda: client.snapshot(tmp_path))
    assert taken.kind is ProblemKind.CONFLICT
    assert taken.detail == f"{tmp_path} exists already; name a new folder"
    lost = problem(lambda: client.snapshot(tmp_path / "a" / "b"))
    assert lost.kind is ProblemKind.BAD_REQUEST
    assert lost.detail == f"there is no folder {tmp_path / 'a'} to put the snapshot in; make it"
    assert client.verify() == {
        "ok": False,
        "problems": ["one value is twice in the log"],
        "values": 7,
        "objects": 0,
    }


def test_a_feed_that_was_left_meanwhile(served):
    def gone():
        raise LookupError("the feed was left")

    served.call(served.node.add, FeedSettings(key=OTHER.public_key))
    served.node.feeds[OTHER.public_key].values.record = gone
    client, key = served.client(), OTHER.public_key.hex()
    for call in (
        lambda: client.feed(key),
        lambda: client.count(feed=key),
        lambda: next(client.watch(feed=key)),
    ):
        refused = problem(call)
        assert refused.kind is ProblemKind.UNKNOWN_FEED
        assert refused.detail == "the feed was left"
    # Left while the node joins it.
    served.node.join = lambda settings: served.node.leave(OTHER.public_key)
    assert problem(lambda: client.join_feed({"key": key})).kind is ProblemKind.UNKNOWN_FEED


def test_a_mistake_in_the_code_is_not_taken_for_a_feed_that_was_left(served):
    def wrong():
        return {}["key"]

    served.node.own.record = wrong
    assert problem(served.client().count).kind is ProblemKind.UNEXPECTED


def test_trust_in_a_word_everywhere_alike(served):
    client, own = served.client(), served.node.identity.public_key
    keys = [Identity(bytes([number]) * 32) for number in range(1, 4)]
    for key in keys:
        served.call(served.node.add, FeedSettings(key=key.public_key, peers=("a.example:1",)))
    for key, seconds in zip(keys, (3_600, -3_600), strict=False):
        link = issue_link(key, own, expires=time.time() + seconds, nonce=bytes(32))
        served.node.feeds[key.public_key]._learn(key.public_key, link)
    words = ["owner", "member", "expired", "none"]
    assert [feed["trust"] for feed in client.feeds()] == words
    status = client.status()
    assert [feed["trust"] for feed in status["feeds"]] == words
    assert [feed["own"] for feed in client.feeds()] == [True, False, False, False]
    assert [feed["dials"] for feed in status["feeds"]] == [[], *[["a.example:1"]] * 3]
    assert status["addresses"] == ["127.0.0.1:4365"]


def test_the_own_feed_goes_by_that_word(served):
    client = served.client()
    assert client.feed("own")["key"] == served.node.own.key.hex()
    served.call(served.node.add, FeedSettings(key=OTHER.public_key, alias="own"))
    assert client.feed("own")["key"] == OTHER.public_key.hex()


def test_an_alias_names_one_feed(served):
    client = served.client()
    client.join_feed({"key": OTHER.public_key.hex(), "alias": "a"})
    again = client.join_feed({"key": OTHER.public_key.hex(), "alias": "a", "mode": "light"})
    assert again["mode"] == "light"
    with pytest.raises(Problem, match="'a' names another feed already"):
        client.join_feed({"key": (b"k" * 32).hex(), "alias": "a"})
    assert len(client.feeds()) == 2


# Values


def test_put_tells_new_from_known(served):
    client = served.client()
    where = {"feed": served.node.own.key.hex(), "name": "own"}
    assert client.put([b"b", b"a", b"b"]) == {"new": 2, "known": 1, "top_seq": 2, **where}
    assert client.put([b"a", b"c"]) == {"new": 1, "known": 1, "top_seq": 3, **where}
    assert served.node.own.ordered == [b"a", b"b", b"c"]


def test_has_and_count(served):
    client = served.client()
    client.put([b"a", b"\x00\xff"])
    assert client.has([b"a", b"b", b"\x00\xff"]) == [True, False, True]
    assert client.count() == {
        "count": 2,
        "bytes": 3,
        "digest": served.node.own.record().digest.hex(),
        "digest_left": 0,
    }
    served.node.own.digest_left = 1
    assert client.count() == {"count": 2, "bytes": 3, "digest": None, "digest_left": 1}
    feed = client.feed(served.node.own.key.hex())
    assert (feed["digest"], feed["digest_left"]) == (None, 1)


def test_range_in_pages(served):
    client = served.client()
    values = [b"%04d" % number for number in range(2_500)]
    client.put(values)
    assert client.range_page() == (values[:1_000], b"0999\0")
    assert client.range_page(start=b"2000", limit=3) == (values[2_000:2_003], b"2002\0")
    assert client.range_page(start=b"2499") == ([b"2499"], None)
    assert client.range_page(start=b"3") == ([], None)
    pages = list(client.pages(page=700, start=b"0001", end=b"2400"))
    assert joined(pages) == values[1:2_400]
    assert [len(page) for page in pages] == [700, 700, 700, 299]
    assert joined(client.pages(limit=1_500, page=1_000)) == values[:1_500]
    assert joined(client.pages(limit=1_000, page=1_000)) == values[:1_000]
    assert list(client.range(limit=0)) == []


def test_the_longest_values_pass_and_can_be_bounds(served):
    client = served.client()
    long = [b"a" * 261_049, b"b" * 261_049]
    client.put(long)
    # A page ends by its bytes too, so that the next one begins at such a value.
    for number in range(6):
        client.put([b"a" * 261_047 + b"b%d" % number])
    assert list(client.range()) == served.node.own.ordered
    assert client.range_page(start=long[1], end=long[1] + b"\0")[0] == [long[1]]


def test_waiting_until_peers_are_in_sync(served):
    client, key = served.client(), served.node.own.key
    client.put([b"v"])
    form = client.wait_synced(["one:1", "two:1"], timeout=7.0)
    assert served.node.calls[-1] == ("wait_synced", key, ["one:1", "two:1"], 7.0)
    assert (form["feed"], form["count"]) == (key.hex(), 1)
    assert [one["name"] for one in form["peers"]] == ["one:1", "two:1"]
    assert form["peers"][0] == {
        "name": "one:1",
        "key": "00" * 32,
        "address": "192.0.2.7:1",
        "at": 5.0,
        "source": "digest",
    }


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nobody:1", ProblemKind.UNKNOWN_PEER),
        ("nobody", ProblemKind.UNKNOWN_PEER),
        ("apart:1", ProblemKind.NOT_IN_SYNC),
    ],
)
def test_who_is_not_in_sync(served, name, kind):
    with pytest.raises(Problem) as raised:
        served.client().wait_synced([name], timeout=1.0)
    assert raised.value.kind is kind


def test_who_goes_before_the_answer_waits_no_more(served):
    client = Client(served.path, timeout=0.3)
    with pytest.raises(NodeTimeout):
        client.wait_synced(["never:1"], timeout=60.0)
    client.close()
    deadline = time.monotonic() + 240
    while ("gone",) not in served.node.calls and time.monotonic() < deadline:
        time.sleep(0.02)
    assert ("gone",) in served.node.calls


def test_a_fetch_asks_the_peers(served):
    client = served.client()
    assert client.fetch(timeout=1.0) == 0
    key = OTHER.public_key
    served.call(served.node.add, FeedSettings(key=key, mode="light"))
    assert client.fetch(feed=key.hex(), start=b"a", end=b"b", limit=4, timeout=2.0) == 5
    assert served.node.calls[-1] == ("fetch", b"a", b"b", 4, 2.0)


def test_a_whole_number_may_be_written_as_a_float(served):
    """JSON has one kind of number, and 4.0 is an integer by its schema."""
    path = "/v1/feeds/-/fetch"
    assert served.ask("POST", path, {"limit": 4.0})[0] == 200
    *_, limit, _ = served.node.calls[-1]
    assert (limit, type(limit)) == (4, int)
    for wrong in (b"4.5", b"1e400", b"true", b'"4"'):
        assert served.ask("POST", path, b'{"limit":%b}' % wrong)[0] == 400


def test_an_answer_waits_for_the_disk(served):
    """What the node has not confirmed is not acknowledged."""
    later: Deferred = Deferred()
    feed = served.node.own
    insert, feed.insert = feed.insert, lambda values: later.addCallback(lambda _: insert(values))
    connection = served.connection()
    connection.request("POST", "/v1/feeds/-/values", json.dumps({"values": ["61"]}))
    connection.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        connection.sock.recv(1)
    connection.sock.settimeout(240)
    served.call(later.callback, None)
    assert connection.getresponse().status == 200
    connection.close()


def test_a_client_that_leaves_before_the_answer_does_no_harm(served):
    later: Deferred = Deferred()
    asked = threading.Event()

    def insert(values):
        asked.set()
        return later

    served.node.own.insert = insert
    connection = served.connection()
    connection.request("POST", "/v1/feeds/-/values", json.dumps({"values": ["61"]}))
    assert asked.wait(240)
    connection.close()
    served.client().ping()
    served.call(later.errback, ValueError("too late"))
    assert served.client().ping()


def test_64_callers_at_once(served):
    wrong = []

    def call(caller):
        try:
            client = served.client()
            for number in range(20):
                answer = client.put([b"%d-%d" % (caller, number)])
                assert answer["new"] == 1
        except BaseException as error:
            wrong.append(error)

    callers = [threading.Thread(target=call, args=(caller,)) for caller in range(64)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    assert served.client().count()["count"] == 64 * 20


# Feeds


def test_join_show_and_leave(served):
    client = served.client()
    settings = FeedSettings(
        key=OTHER.public_key,
        alias="other",
        mode="range",
        ranges=((b"a", b"b"), (b"\xff", None)),
        peers=("127.0.0.1:4365",),
        issue_links=False,
    )
    form = client.join_feed(settings.to_json())
    assert served.node.calls == [("join", settings)]
    assert FeedSettings.from_json(form) == settings
    assert client.feed("other") == client.feed(OTHER.public_key.hex()) == form
    assert form["chain"] is None
    own = client.feed()
    assert own["chain"] == {"links": 0, "expires": None}
    assert client.feeds() == [own, form]
    client.leave_feed("other")
    assert client.feeds() == [own]
    assert problem(lambda: client.leave_feed("other")).kind is ProblemKind.UNKNOWN_FEED
    assert "named in the configuration" in problem(lambda: client.leave_feed(own["key"])).detail


def test_names_of_feeds_are_quoted(served):
    assert problem(lambda: served.client().feed("a/b ?#é")).detail == (
        "there is no feed 'a/b ?#é' on this node"
    )


# Trust


def test_links_members_and_chains(served):
    client = served.client()
    answer = client.issue_link(FRIEND.public_key, expires=FAR)
    link = parse_link(bytes.fromhex(answer["link"]))
    assert (link.public_key, answer["expires"]) == (FRIEND.public_key, FAR)
    onward = issue_link(FRIEND, OTHER.public_key, expires=FAR - 1, nonce=bytes(32))
    own = served.node.own.key
    added = client.add_links([bytes.fromhex(answer["link"]), onward.to_bytes()])
    assert added == {
        "holder": OTHER.public_key.hex(),
        "holder_name": None,
        "links": 2,
        "expires": FAR - 1,
    }
    client.name_key(FRIEND.public_key, "friend")
    nobody = {"name": None, "introduced_by_name": None, "connected": False, "invited_at": None}
    assert client.members() == [
        {**nobody, "key": own.hex(), "depth": 0, "introduced_by": None, "expires": None},
        {
            **nobody,
            "key": FRIEND.public_key.hex(),
            "name": "friend",
            "depth": 1,
            "introduced_by": own.hex(),
            "expires": FAR,
            "invited_at": 3.0,
        },
        {
            **nobody,
            "key": OTHER.public_key.hex(),
            "depth": 2,
            "introduced_by": FRIEND.public_key.hex(),
            "introduced_by_name": "friend",
            "expires": FAR - 1,
        },
    ]
    assert client.ask("GET", "/v1/feeds/-/members")["invited"] == 1
    assert client.links()[0] == {
        "issuer": own.hex(),
        "issuer_name": None,
        "trustee": FRIEND.public_key.hex(),
        "trustee_name": "friend",
        "expires": FAR,
        "first_seen": 2.0,
        "introduced_by": own.hex(),
        "link": answer["link"],
    }


def test_chains_that_do_not_hold(served):
    client = served.client()
    old = issue_link(served.node.identity, FRIEND.public_key, expires=5.0, nonce=bytes(32))
    assert problem(lambda: client.add_links([old.to_bytes()])).kind is ProblemKind.EXPIRED
    forged = issue_link(OTHER, FRIEND.public_key, expires=FAR, nonce=bytes(32))
    assert problem(lambda: client.add_links([forged.to_bytes()])).kind is ProblemKind.BAD_CHAIN
    assert problem(lambda: client.add_links([b"short"])).kind is ProblemKind.BAD_CHAIN


def test_an_untrusted_node_is_told_so(served):
    client = served.client()
    client.join_feed({"key": OTHER.public_key.hex()})
    feed = OTHER.public_key.hex()
    for call in (
        lambda: client.put([b"a"], feed=feed),
        lambda: client.issue_link(FRIEND.public_key, expires=FAR, feed=feed),
        lambda: client.invite(FRIEND.public_key, expires=FAR, feed=feed),
    ):
        refused = problem(call)
        assert refused.kind is ProblemKind.NOT_TRUSTED
        assert "no chain of links" in refused.detail


# Invitations


def test_an_invitation_holds_the_chain_and_addresses(served):
    client = served.client()
    form = client.invite(FRIEND.public_key, expires=FAR)
    invitation = decode_invitation(form["invitation"])
    assert invitation.feed_key == served.node.own.key
    assert invitation.addresses == ("127.0.0.1:4365",)
    chain = verify_chain(invitation.feed_key, invitation.links, now=time.time())
    assert chain.holder == FRIEND.public_key
    assert form["expires"] == chain.expires == FAR
    given = client.invite(FRIEND.public_key, expires=FAR, addresses=["a.example:1"])
    assert decode_invitation(given["invitation"]).addresses == ("a.example:1",)


def test_a_wildcard_listener_is_made_an_address_that_can_be_dialled(served):
    served.node.listens = ["0.0.0.0:4365"]
    (address,) = served.client().invite(FRIEND.public_key, expires=FAR)["addresses"]
    assert address.endswith(":4365")
    assert not address.startswith("0.0.0.0")


def invitation_for(
    key, *, issuer=OTHER, expires=FAR, addresses=("127.0.0.1:4365",), form=LINK_FORMAT_2
):
    link = issue_link(issuer, key, expires=expires, nonce=bytes(32), format=form)
    return encode_invitation(
        Invitation(feed_key=OTHER.public_key, links=(link.to_bytes(),), addresses=addresses)
    )


def test_taking_an_invitation(served):
    client = served.client()
    line = invitation_for(served.node.identity.public_key)
    form = client.accept(line, alias="other", mode="full")
    assert form["alias"] == "other"
    assert form["peers"] == ["127.0.0.1:4365"]
    assert form["chain"] == {"links": 1, "expires": FAR}
    assert client.put([b"a"], feed="other")["new"] == 1
    # Taken again, nothing is lost and nothing joined anew.
    assert client.accept(line)["alias"] == "other"
    assert [call[0] for call in served.node.calls].count("join") == 1
    # One with another address changes nothing by itself, and adds that where it is asked for.
    more = invitation_for(served.node.identity.public_key, addresses=("b.example:1",))
    form = client.accept(more)
    assert (form["peers"], form["not_added"]) == (["127.0.0.1:4365"], ["b.example:1"])
    assert [call[0] for call in served.node.calls].count("join") == 1
    form = client.accept(more, add_addresses=True)
    assert (form["peers"], form["not_added"]) == (["127.0.0.1:4365", "b.example:1"], [])
    assert client.accept(more)["not_added"] == []


def test_an_expired_invitation_says_what_to_do(served):
    line = invitation_for(served.node.identity.public_key, expires=1e9 + 0.5)
    refused = problem(lambda: served.client().accept(line))
    assert refused.detail.startswith(
        "the invitation is out of date (trust link 1: it expired on 2001-09-09 01:46:40 UTC; the "
        "time here is 20"
    )
    assert refused.detail.endswith("); ask for a new one")


def test_an_invitation_is_granted_the_leeway_of_the_node(served):
    line = invitation_for(served.node.identity.public_key, expires=time.time() - 60)
    served.node.context.leeway = 30.0
    assert problem(lambda: served.client().accept(line)).kind is ProblemKind.EXPIRED
    served.node.context.leeway = 3_600.0
    assert served.client().accept(line)["key"] == OTHER.public_key.hex()


@pytest.mark.parametrize(
    ("make", "kind", "part"),
    [
        (lambda own: "hyperbloom:AAAA", ProblemKind.BAD_INVITATION, "cut short"),
        (lambda own: invitation_for(own)[:-3], ProblemKind.BAD_INVITATION, "cut short"),
        (lambda own: "nonsense", ProblemKind.BAD_INVITATION, "begins with"),
        (
            lambda own: invitation_for(FRIEND.public_key),
            ProblemKind.BAD_INVITATION,
            "is for " + FRIEND.public_key.hex(),
        ),
        (
            lambda own: invitation_for(own, addresses=("\x1b[2J:1",)),
            ProblemKind.BAD_INVITATION,
            "addresses are damaged",
        ),
        (lambda own: invitation_for(own, expires=9.0), ProblemKind.EXPIRED, "expired"),
        (lambda own: invitation_for(own, issuer=FRIEND), ProblemKind.BAD_CHAIN, "signed"),
        (
            lambda own: invitation_for(own, form=LINK_FORMAT_DRAFT, expires=math.inf),
            ProblemKind.BAD_CHAIN,
            "not in the form of dialect 2",
        ),
    ],
)
def test_a_bad_invitation_changes_nothing(served, make, kind, part):
    line = make(served.node.identity.public_key)
    refused = problem(lambda: served.client().accept(line))
    assert refused.kind is kind
    assert part in refused.detail
    assert not served.node.calls
    assert list(served.node.feeds) == [served.node.own.key]


# What is refused


def test_every_route_refuses_other_methods(served):
    for path in {route.path for route in ROUTES}:
        asked = path.replace("{feed}", "-").replace("{hash}", "0" * 16)
        status, headers, _ = served.ask("PUT", asked)
        assert status == 405
        methods = {route.method for route in ROUTES if route.path == path}
        assert set(headers["allow"].split(", ")) == methods


def test_what_the_store_refuses(served):
    client = served.client()
    served.node.own.failure = disk_full()
    refused = problem(lambda: client.put([b"a"]))
    assert refused.kind is ProblemKind.STORE_FULL
    assert refused.detail == "the disk is full; make room"
    served.node.own.failure = None
    assert client.put([b"a"])["new"] == 1


def test_only_the_nodes_own_word_on_a_value_is_passed_on(served):
    """A ValueError out of a bug is not the caller's mistake."""
    served.node.own.has = lambda values: int("x")
    assert problem(lambda: served.client().has([b"a"])).kind is ProblemKind.UNEXPECTED
    served.node.own.failure = ValueError("a value has at most 3 bytes")
    refused = problem(lambda: served.client().put([b"long"]))
    assert (refused.kind, refused.detail) == (
        ProblemKind.BAD_REQUEST,
        "a value has at most 3 bytes",
    )


def test_what_nobody_foresaw_is_logged_and_not_told(served):
    events = []
    globalLogPublisher.addObserver(events.append)
    try:
        served.node.own.failure = RuntimeError("secret of the node")
        refused = problem(lambda: served.client().put([b"a"]))
    finally:
        globalLogPublisher.removeObserver(events.append)
    assert refused.kind is ProblemKind.UNEXPECTED
    assert "secret" not in refused.detail
    logged = [event["log_failure"] for event in events if "log_failure" in event]
    assert [str(failure.value) for failure in logged] == ["secret of the node"]
    # The same before the endpoint has begun.
    served.node.own.has = lambda values: 1 / 0
    assert problem(lambda: served.client().has([b"a"])).kind is ProblemKind.UNEXPECTED
