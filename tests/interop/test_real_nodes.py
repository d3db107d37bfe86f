"""Our node, as twistd runs it, and the npm reference keep one feed the same.

Every case that could depend on it runs with the owner on either side and with either side dialling.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, real_nodes, wait_until
from npm_peer import NpmPeer

from hyperbloom.keys import Identity
from hyperbloom.trust import issue_link

StartNpm = Callable[[], NpmPeer]

OWNER = Identity(bytes([1]) * 32)
ALICE = Identity(bytes([2]) * 32)
BOB = Identity(bytes([3]) * 32)
CAROL = Identity(bytes([4]) * 32)
FEED = OWNER.public_key
FAR = 4e9
LONG_AGO = 1e9

either_owner = pytest.mark.parametrize("ours", ["owner", "member"])
each_dialect = pytest.mark.parametrize("dialect", ["2", "1"])
either_dialler = pytest.mark.parametrize("dialler", ["ours", "npm"])


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


def link(issuer: Identity, trustee: Identity, expires: float = FAR, nonce: int = 0) -> bytes:
    made = issue_link(issuer, trustee.public_key, expires=expires, nonce=bytes([nonce]) * 32)
    return made.to_bytes()


LONG_CHAIN = [link(OWNER, BOB), link(BOB, CAROL), link(CAROL, ALICE)]


class Meeting:
    """Our node and an npm peer, connected and secure about the owner's feed."""

    def __init__(
        self,
        nodes: Nodes,
        npm: StartNpm,
        *,
        ours: str = "owner",
        dialler: str = "npm",
        dialect: str = "2",
        raw: bool = False,
        chain: list[bytes] | None = None,
        join: tuple[str, ...] = (),
        config: str = "",
        before: Callable[[Meeting], object] = lambda _: None,
        apart: bool = False,
        **npm_options: object,
    ) -> None:
        mine, theirs = (OWNER, ALICE) if ours == "owner" else (ALICE, OWNER)
        chain = [link(OWNER, ALICE)] if chain is None else chain
        if mine is OWNER:
            config += f'[[feeds]]\nkey = "{FEED.hex()}"\ndialect = "{dialect}"\n'
        keys: dict[str, object] = {"seed": mine.seed}
        if apart:
            # The feed's pair lies beside the node's, which is another.
            keys = {"feed": "words", "pair": OWNER} if mine is OWNER else {"feed": "own", **keys}
        self.node: RealNode = nodes.make("ours", config=config, **keys).start()
        self.peer = npm()
        start = self.peer.raw if raw else self.peer.node
        start(
            seed=theirs.seed,
            feed_key=FEED,
            chain=chain if theirs is ALICE else [],
            dialect=dialect,
            **npm_options,
        )
        if mine is ALICE:
            self.run("feed", "join", FEED.hex(), "--dialect", dialect, *join)
            self.run("trust", "add", FEED.hex(), *[one.hex() for one in chain])
        before(self)
        self.connection = 0
        if dialler == "npm":
            self.connection = self.peer.connect_securely(self.node.port)
        else:
            address = f"127.0.0.1:{self.peer.listen()}"
            self.run("feed", "join", FEED.hex(), "--peer", address, *join)
            self.connection = self.peer.wait("secure")["connection"]
        self.node.wait_for_peers(FEED, 1)

    def run(self, *command: str) -> bytes:
        done = self.node.command(*command)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def chain_links(self) -> int:
        with self.node.client() as client:
            (feed,) = [feed for feed in client.feeds() if feed["key"] == FEED.hex()]
        assert feed["chain"] is not None
        return feed["chain"]["links"]

    def refusals(self) -> list[str]:
        with self.node.client() as client:
            return [refusal["kind"] for refusal in client.status()["refusals"]]


def numbered(count: int, length: int = 20, start: int = 0) -> list[bytes]:
    return [b"%08d" % number + b"." * (length - 8) for number in range(start, start + count)]


def in_batches(node: RealNode, values: list[bytes], size: int = 5_000) -> None:
    for start in range(0, len(values), size):
        node.put(*values[start : start + size], feed=FEED)


@pytest.mark.parametrize("apart", [True, False], ids=["key of its own", "the node's key"])
@each_dialect
@either_owner
@either_dialler
def test_sync_and_broadcast_both_ways(
    nodes: Nodes, npm: StartNpm, ours: str, dialler: str, dialect: str, apart: bool
) -> None:
    def before(meeting: Meeting) -> None:
        meeting.node.put(b"only ours", b"both", feed=FEED)
        meeting.peer.bulk_insert([b"only npm's", b"both"])

    meeting = Meeting(
        nodes, npm, ours=ours, dialler=dialler, dialect=dialect, before=before, apart=apart
    )
    node, peer = meeting.node, meeting.peer
    assert (node.key in (OWNER.public_key, ALICE.public_key)) != (apart and ours == "owner")
    node.wait_for_count(FEED, 3)
    peer.until(count=3)
    node.put(b"new ours", feed=FEED)
    peer.insert(b"new npm's")
    node.wait_for_count(FEED, 5)
    peer.until(count=5)
    assert (
        node.values(FEED)
        == peer.values()
        == sorted([b"only ours", b"only npm's", b"both", b"new ours", b"new npm's"])
    )


@either_dialler
def test_twenty_thousand_shared_values_with_differences(
    nodes: Nodes, npm: StartNpm, dialler: str
) -> None:
    shared = numbered(20_000)
    ours, theirs = numbered(100, start=30_000), numbered(100, start=40_000)

    def before(meeting: Meeting) -> None:
        in_batches(meeting.node, [*shared, *ours])
        meeting.peer.bulk_insert([*shared, *theirs])

    meeting = Meeting(nodes, npm, dialler=dialler, before=before)
    meeting.node.wait_for_count(FEED, 20_200, 60)
    meeting.peer.until(count=20_200, timeout=240)
    (peer,) = meeting.node.peers(FEED)
    assert peer["values_in"] < 110, "what both have was not sent"


@each_dialect
@either_dialler
def test_a_set_that_no_frame_holds_comes_from_us_in_many(
    nodes: Nodes, npm: StartNpm, dialler: str, dialect: str
) -> None:
    values = numbered(10_000, length=120)
    meeting = Meeting(
        nodes,
        npm,
        dialler=dialler,
        dialect=dialect,
        before=lambda meeting: in_batches(meeting.node, values),
    )
    meeting.peer.until(count=len(values), timeout=240)
    assert meeting.peer.values() == values


@each_dialect
@either_dialler
def test_a_set_that_no_frame_holds_is_asked_of_npm_in_parts(
    nodes: Nodes, npm: StartNpm, dialler: str, dialect: str
) -> None:
    values = numbered(10_000, length=120)
    meeting = Meeting(
        nodes,
        npm,
        dialler=dialler,
        dialect=dialect,
        before=lambda meeting: meeting.peer.bulk_insert(values),
    )
    meeting.node.wait_for_count(FEED, len(values), 60)
    assert meeting.node.values(FEED) == values


def test_long_values_among_short_ones_come_from_npm_in_the_end(nodes: Nodes, npm: StartNpm) -> None:
    """The first replies are too long for any frame: the peer is lost, and asked for less."""
    numbers = random.Random(5)
    values = sorted([*numbered(500), *(numbers.randbytes(100_000) for _ in range(6))])
    meeting = Meeting(
        nodes,
        npm,
        dialler="ours",
        before=lambda meeting: meeting.peer.bulk_insert(values),
    )
    meeting.node.wait_for_count(FEED, len(values), 60)
    assert meeting.node.values(FEED) == values


def test_more_than_npm_could_ever_sync_by_itself(nodes: Nodes, npm: StartNpm) -> None:
    """Its one filter for 40,000 values passes a frame: we refuse that, and ask by ranges."""
    values = numbered(40_000)
    extra = numbered(50, start=50_000)

    def before(meeting: Meeting) -> None:
        in_batches(meeting.node, [*values, *extra])

    meeting = Meeting(nodes, npm, before=before)
    meeting.peer.until(count=len(values) + len(extra), timeout=240)


# Sync and Request, sent by hand


EMPTY = {"filter": b"\0" * 8, "size": 64, "n": 2}


def received(meeting: Meeting) -> list[bytes]:
    events = meeting.peer.events("message", type="data")
    return [bytes.fromhex(value) for event in events for value in event["body"]["values"]]


def raw_meeting(nodes: Nodes, npm: StartNpm, **more: object) -> Meeting:
    return Meeting(
        nodes,
        npm,
        raw=True,
        before=lambda meeting: meeting.node.put(b"a", b"b1", b"b2", b"c", feed=FEED),
        **more,
    )


@each_dialect
def test_a_ranged_sync_is_answered_with_its_range(
    nodes: Nodes, npm: StartNpm, dialect: str
) -> None:
    meeting = raw_meeting(nodes, npm, dialect=dialect)
    meeting.peer.send_sync(meeting.connection, **EMPTY, range=(b"b", b"c"))
    meeting.peer.wait("message", type="data")
    assert received(meeting) == [b"b1", b"b2"]


@each_dialect
def test_a_limit_of_zero_means_no_limit(nodes: Nodes, npm: StartNpm, dialect: str) -> None:
    meeting = raw_meeting(nodes, npm, dialect=dialect)
    meeting.peer.send_sync(meeting.connection, **EMPTY, limit=0)
    meeting.peer.wait("message", type="data")
    assert received(meeting) == [b"a", b"b1", b"b2", b"c"]


@each_dialect
def test_a_limit_is_kept(nodes: Nodes, npm: StartNpm, dialect: str) -> None:
    meeting = raw_meeting(nodes, npm, dialect=dialect)
    meeting.peer.send_sync(meeting.connection, **EMPTY, limit=2)
    meeting.peer.wait("message", type="data")
    assert received(meeting) == [b"a", b"b1"]


@each_dialect
def test_a_request_is_answered_in_order(nodes: Nodes, npm: StartNpm, dialect: str) -> None:
    meeting = raw_meeting(nodes, npm, dialect=dialect)
    meeting.peer.send_request(meeting.connection, b"b", limit=2)
    meeting.peer.wait("message", type="data")
    assert received(meeting) == [b"b1", b"b2"]


@each_dialect
@either_dialler
def test_our_light_node_fetches_from_npm(
    nodes: Nodes, npm: StartNpm, dialler: str, dialect: str
) -> None:
    values = numbered(5_000, length=120)
    meeting = Meeting(
        nodes,
        npm,
        ours="member",
        dialler=dialler,
        dialect=dialect,
        join=("--mode", "light"),
        before=lambda meeting: meeting.peer.bulk_insert(values),
    )
    command = ("get", "--feed", FEED.hex(), "--start", "00001000", "--end", "00004000")
    got = meeting.run(*command).split()
    assert got == values[1_000:4_000]


@each_dialect
def test_an_unknown_message_is_skipped_before_and_after_the_handshake(
    nodes: Nodes, npm: StartNpm, dialect: str
) -> None:
    meeting = raw_meeting(nodes, npm, dialect=dialect, twists={"early": [[99, "0102"]]})
    meeting.peer.send_frame(meeting.connection, 99, b"what is this")
    meeting.peer.send_request(meeting.connection, b"c")
    meeting.peer.wait("message", type="data")
    assert received(meeting) == [b"c"]
    (peer,) = meeting.node.peers(FEED)
    assert peer["strikes"] == 0


def test_values_that_are_wrongly_signed_are_not_stored(nodes: Nodes, npm: StartNpm) -> None:
    meeting = raw_meeting(nodes, npm)
    meeting.peer.send_data(meeting.connection, [b"forged"], signature="00" * 64)
    meeting.peer.send_data(meeting.connection, [b"good"])
    meeting.node.wait_for_count(FEED, 5)
    assert b"forged" not in meeting.node.values(FEED)
    (peer,) = meeting.node.peers(FEED)
    assert peer["strikes"] == 1


# What dialect 1 does not sign


def test_values_of_protocol_1_are_taken_and_sent_without_a_signature(
    nodes: Nodes, npm: StartNpm
) -> None:
    meeting = raw_meeting(nodes, npm, dialect="1")
    meeting.peer.send_data(meeting.connection, [b"bare"])
    meeting.node.wait_for_count(FEED, 5)
    meeting.peer.send_request(meeting.connection, b"")
    meeting.peer.wait("message", type="data")
    assert received(meeting) == [b"a", b"b1", b"b2", b"bare", b"c"]


def test_a_feed_of_dialect_2_takes_no_value_of_protocol_1(nodes: Nodes, npm: StartNpm) -> None:
    """Both shake hands alike; what is not signed is refused all the same, and nothing is agreed."""
    node = nodes.make("ours", seed=OWNER.seed).start()
    peer = npm()
    peer.raw(seed=ALICE.seed, feed_key=FEED, chain=[link(OWNER, ALICE)], dialect="1")
    connection = peer.connect_securely(node.port)
    peer.send_data(connection, [b"bare"])
    peer.wait("close", connection=connection)
    with node.client() as client:
        (refusal,) = client.status()["refusals"]
    assert refusal["kind"] == "protocol"
    assert "lacks its signature" in refusal["reason"]
    assert node.values(FEED) == []


def test_what_dialect_1_lacks_is_told(nodes: Nodes, npm: StartNpm) -> None:
    meeting = Meeting(nodes, npm, dialect="1")
    with meeting.node.client() as client:
        (feed,) = client.status()["feeds"]
    assert (feed["dialect"], feed["data_signed"]) == ("1", False)
    (lack,) = feed["lacks"]
    assert lack in meeting.node.log_path.read_text()
    assert lack in meeting.run("status").decode()


# Links


@each_dialect
@either_dialler
def test_we_issue_a_link_and_npm_takes_it(
    nodes: Nodes, npm: StartNpm, dialler: str, dialect: str
) -> None:
    meeting = Meeting(nodes, npm, dialler=dialler, dialect=dialect, chain=LONG_CHAIN)
    update = meeting.peer.wait("chain-update")
    assert len(update["chain"]) == 1
    assert meeting.peer.chain() == (bytes.fromhex(update["chain"][0]),)


@each_dialect
@either_dialler
def test_npm_issues_a_link_and_we_take_it(
    nodes: Nodes, npm: StartNpm, dialler: str, dialect: str
) -> None:
    meeting = Meeting(nodes, npm, ours="member", dialler=dialler, dialect=dialect, chain=LONG_CHAIN)
    wait_until(lambda: meeting.chain_links() == 1, 20, "the shorter chain")


def test_no_link_is_issued_where_the_setting_says_so(nodes: Nodes, npm: StartNpm) -> None:
    def before(meeting: Meeting) -> None:
        with meeting.node.client() as client:
            client.join_feed({"key": FEED.hex(), "issue_links": False})

    meeting = Meeting(nodes, npm, chain=LONG_CHAIN, before=before)
    meeting.node.put(b"a", feed=FEED)
    meeting.peer.until(count=1)
    assert meeting.peer.events("chain-update") == []


# Who is not let in


def refused_kind(nodes: Nodes, peer: NpmPeer, dialler: str = "npm") -> str:
    node = nodes.make("ours", seed=OWNER.seed).start()
    if dialler == "npm":
        peer.connect(node.port)
    else:
        join = node.command("feed", "join", FEED.hex(), "--peer", f"127.0.0.1:{peer.listen()}")
        assert join.returncode == 0, join.stderr
    connection = peer.wait("connection")["connection"]
    peer.wait("close", connection=connection)
    with node.client() as client:
        status = client.status()
    assert node.peers(FEED) == []
    assert node.values(FEED) == []
    refusals = status["refusals"]
    return refusals[0]["kind"] if refusals else "gone"


def test_another_feed_is_refused(nodes: Nodes, npm: StartNpm) -> None:
    peer = npm()
    peer.raw(seed=BOB.seed, feed_key=BOB.public_key)
    assert refused_kind(nodes, peer) == "unknown-feed"


def test_a_peer_that_answers_for_another_feed_is_refused(nodes: Nodes, npm: StartNpm) -> None:
    peer = npm()
    peer.raw(seed=BOB.seed, feed_key=BOB.public_key)
    assert refused_kind(nodes, peer, "ours") == "protocol"
    assert peer.events("secure") == []


def test_a_discovery_key_without_the_feed_key_does_not_help(nodes: Nodes, npm: StartNpm) -> None:
    from hyperbloom.keys import discovery_key

    peer = npm()
    twists = {"discoveryKey": discovery_key(FEED).hex()}
    peer.raw(seed=BOB.seed, feed_key=BOB.public_key, twists=twists)
    # What it sends is noise to us, a frame that is refused or one that never ends; what we send is
    # noise to it, and it may go first.
    assert refused_kind(nodes, peer) in ("protocol", "slow", "gone")


@pytest.mark.parametrize(
    ("chain", "kind"),
    [
        ([link(OWNER, ALICE, LONG_AGO)], "expired"),
        ([link(OWNER, BOB), link(BOB, ALICE, LONG_AGO)], "expired"),
        ([link(BOB, ALICE)], "untrusted"),
        ([link(OWNER, BOB), link(CAROL, ALICE)], "untrusted"),
        ([link(OWNER, BOB)], "untrusted"),
        ([], "untrusted"),
    ],
    ids=["expired", "second expired", "forged", "second forged", "of another", "none"],
)
@either_dialler
def test_a_chain_that_does_not_hold_is_refused(
    nodes: Nodes, npm: StartNpm, chain: list[bytes], kind: str, dialler: str
) -> None:
    peer = npm()
    twists = {"handshakeChain": [one.hex() for one in chain], "handshakeSeed": ALICE.seed.hex()}
    peer.raw(seed=OWNER.seed, feed_key=FEED, twists=twists)
    assert refused_kind(nodes, peer, dialler) == kind


def test_an_npm_member_whose_link_runs_out_writes_no_more(nodes: Nodes, npm: StartNpm) -> None:
    expires = time.time() + 6
    meeting = Meeting(nodes, npm, chain=[link(OWNER, ALICE, expires)])
    meeting.peer.insert(b"in time")
    meeting.node.wait_for_count(FEED, 1)
    meeting.peer.wait("close", connection=meeting.connection, timeout=240)
    assert meeting.refusals()[0] == "expired"
    meeting.peer.insert(b"late")
    meeting.node.put(b"ours", feed=FEED)
    assert meeting.node.values(FEED) == [b"in time", b"ours"]
