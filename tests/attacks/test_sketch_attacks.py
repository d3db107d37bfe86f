"""Members who lie in sketches, or ask for them without end: the honest converge, at a small cost.

The owner compares itself with each peer every second. A hostile one says that it differs, whatever
it has been sent; so each round may cost the owner a try by symbols, and what comes of it is a plan
of filters, as without the extension. A try with a salt there is once an hour.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from pathlib import Path

import pytest
from attacker import DATA, SYNC, Connection, Ended, KeyPair, values_of
from nodes import wait_until
from reconciler import (
    DIGEST,
    DIGEST_REQUEST,
    EXTENSIONS,
    SKETCH,
    SKETCH_REQUEST,
    VALUES_WANTED,
    Answers,
    Asked,
    HostilePeer,
    Symbols,
    Told,
    check_key,
    check_of,
    digest_request,
    id_of,
    peel,
    sketch_request,
    values_wanted,
    walk,
)

SEED = bytes(range(32))
OWNER = KeyPair(SEED)
KEY = check_key(OWNER.public)
HELD = [b"value %06d" % number for number in range(4_000)]
INTERVAL = "[sync]\ninterval = 1\nretry_first = 0.2\n"

#: What filters of these values weigh: 43 bits each, 30 hash functions and some room.
FILTER_BYTES = 44 * len(HELD) // 8
#: Symbols that weigh as much as the filters of both sides, whose place they take.
MOST_SYMBOLS = 2 * FILTER_BYTES // 24
#: Rounds by symbols that may follow each other without a plan.
ROUNDS_WITHOUT_PLAN = 4
#: Memory that attackers may cost beyond what the node takes anyway.
MOST_GROWTH = 60e6
FLOODS = 4


@pytest.fixture(scope="module")
def held_symbols():
    """The beginning of the sequence of what the owner holds, as an attacker makes it."""
    symbols = Symbols(4 * MOST_SYMBOLS)
    for value in HELD:
        symbols.add(id_of(value), KEY)
    return symbols


# Who plays fair


def test_an_implementation_from_the_description_reconciles_with_a_node(nodes):
    owner = nodes.make("owner", seed=SEED, config=INTERVAL).start()
    owner.put(*HELD)
    mine, common = [b"of the peer %d" % n for n in range(20)], HELD[30:]
    key = KeyPair.random()
    with Connection.dial(("127.0.0.1", owner.port)) as wire:
        wire.shake_hands(OWNER.public, key, [OWNER.link(key.public)], extensions=EXTENSIONS)
        wire.send(SKETCH_REQUEST, sketch_request(7, 0, 200))
        told = next(Told.parse(body) for kind, body in messages(wire) if kind == SKETCH)
        assert (told.number, told.first, told.count, told.values) == (7, 0, 200, len(HELD))
        symbols = Symbols(200)
        for value in mine + common:
            symbols.add(id_of(value), KEY)
        found = peel(symbols.minus(told.symbols), KEY)
        assert found == ({id_of(value) for value in mine}, {id_of(value) for value in HELD[:30]})
        wire.send(VALUES_WANTED, values_wanted(7, sorted(found[1])))
        wire.send_data(mine)
        owner.wait_for_count(OWNER.public, len(HELD) + len(mine))
        came = read_values(wire, 30)
        assert came == set(HELD[:30])


def test_the_attackers_walks_and_checks_are_those_of_the_page():
    key, identifier = check_key(bytes(range(32))), bytes(range(16))
    assert key.hex() == "5ae8c7ea2752d4ce4d73fb7a9434d21b"
    begins = [0, 1, 2, 5, 6, 8, 17, 18, 19, 31, 44, 48, 55, 65]
    assert list(walk(identifier))[: len(begins)] == begins
    assert check_of(identifier, key).to_bytes(8, "little").hex() == "56b98cda4c051f3e"


def messages(wire):
    """All that comes, but for what a Digest asks for."""
    while True:
        yield wire.receive()


def read_values(wire, count):
    found = set()
    for kind, body in messages(wire):
        if kind == DATA:
            found.update(values_of(body))
            if len(found) >= count:
                return found
    return found


# Who writes what does not peel


#: Values that are written to go together: the ids of each pair walk the same way through the first
#: 2,000 symbols, so that no sketch without a salt tells them apart before. They were looked for
#: among 6,000,000 such values.
PAIRS = [(1672181, 3631377), (5334295, 5666326), (2825532, 3670137), (3035717, 3117282)]


def test_values_with_equal_walks_are_found_all_the_same(nodes):
    together = [[b"walk %d" % number for number in pair] for pair in PAIRS]
    for one, other in together:
        walks = [[at for at in walk(id_of(value)) if at < 2_000] for value in (one, other)]
        assert walks[0] == walks[1]
        assert MOST_SYMBOLS < 2_000
    with honest_pair(nodes, [value for pair in together for value in pair]) as (_, converge):
        converge()


# Who lies


class Endless(Answers):
    """Symbols without end, which nothing can be made of."""

    def sketch(self, peer, asked):
        peer.say(asked, os.urandom(24 * asked.count) + bytes(asked.count), asked.count, peer.values)


class Twisted(Answers):
    """The owner's own symbols, bent."""

    def __init__(self, symbols: Symbols) -> None:
        self._symbols = symbols

    def sketch(self, peer, asked):
        part = self._symbols.symbols[asked.first : asked.first + asked.count]
        peer.tell(asked, [self.bent(list(symbol)) for symbol in part])

    def bent(self, symbol):
        return symbol


class LyingNumbers(Twisted):
    """Sums that are right, of numbers that are not."""

    def bent(self, symbol):
        return [*symbol[:6], (symbol[6] + random.randrange(1 << 20)) & 0xFFFF_FFFF]


class EqualWalks(Twisted):
    """Ids that always stand together, so that none of them is ever alone."""

    def __init__(self, symbols: Symbols) -> None:
        super().__init__(phantoms(symbols, 1))
        for _ in range(10):
            first, *others = (os.urandom(16) for _ in range(3))
            self._symbols.add(first, KEY)
            for other in others:
                self._symbols.add(other, KEY, along=first)


class Alone(Twisted):
    """Each symbol seems to hold one id too many, which has another check."""

    def bent(self, symbol):
        words = [word + random.getrandbits(32) & 0xFFFF_FFFF for word in symbol[:6]]
        return [*words, symbol[6] + 1 & 0xFFFF_FFFF]


class Silent(Answers):
    """Nothing at all."""

    def sketch(self, peer, asked):
        pass


class FalseCounts(Answers):
    """Symbols of more values than there are anywhere."""

    def sketch(self, peer, asked):
        packed = bytes(24 * asked.count) + bytes(asked.count)
        peer.say(asked, packed, asked.count, random.choice([1, 2**40, 2**62, 2**62 + 1, 2**64 - 1]))


class Misfits(Answers):
    """Answers to what was not asked: another number, other symbols, too many, one by one."""

    def sketch(self, peer, asked):
        kind = random.randrange(4)
        if kind == 0:
            asked = Asked(asked.number + 1, asked.salt, asked.first, asked.count)
        if kind == 1:
            asked = Asked(asked.number, asked.salt, asked.first + 1, asked.count)
        if kind == 2:
            asked = Asked(asked.number, asked.salt, asked.first, min(8_192, 2 * asked.count))
        if kind == 3:
            for first in range(asked.first, asked.first + asked.count):
                one = Asked(asked.number, asked.salt, first, 1)
                peer.say(one, os.urandom(24) + b"\0", 1, peer.values)
            return
        peer.say(asked, os.urandom(24 * asked.count) + bytes(asked.count), asked.count, peer.values)


class Crossing(Endless):
    """Asks the same whenever it is asked, and answers with nonsense."""

    def sketch(self, peer, asked):
        peer.wire.send(SKETCH_REQUEST, sketch_request(asked.number, asked.first, asked.count))
        super().sketch(peer, asked)


def phantoms(symbols: Symbols, count: int) -> Symbols:
    """The symbols with ids that no value has, and which peel."""
    made = Symbols(0)
    made.symbols = [list(symbol) for symbol in symbols.symbols]
    for _ in range(count):
        made.add(os.urandom(16), KEY)
    return made


def without(symbols: Symbols, values: list[bytes]) -> Symbols:
    """The symbols as if these values were not held."""
    made = Symbols(0)
    made.symbols = [list(symbol) for symbol in symbols.symbols]
    for value in values:
        made.add(id_of(value), KEY, -1)
    return made


#: By name: what makes the answers of the owner's symbols, and how many values the peer says it has.
LIES = {
    "symbols that never end": (lambda held: Endless(), len(HELD) - 5),
    "a difference that is nothing": (Twisted, len(HELD)),
    "ids that nobody has": (lambda held: Twisted(phantoms(held, 100)), len(HELD) + 100),
    "values that it has": (lambda held: Twisted(without(held, HELD[:100])), len(HELD) - 100),
    "numbers that lie": (LyingNumbers, len(HELD) + 3),
    "ids with equal walks": (EqualWalks, len(HELD) + 31),
    "checks that are wrong": (Alone, len(HELD) + 1),
    "counts that are false": (lambda held: FalseCounts(), len(HELD) + 9),
    "answers to other questions": (lambda held: Misfits(), len(HELD) + 9),
    "questions in return": (lambda held: Crossing(), len(HELD)),
    "silence": (lambda held: Silent(), len(HELD) + 9),
}


def own_bytes(node) -> int:
    """Memory of the node's process that is its own."""
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) * 1024


@contextlib.contextmanager
def honest_pair(nodes, more=()):
    """An owner with HELD, and a member that holds something else as well; both lack something.

    Gives the owner, running and with `more` values, and a call that starts the member and waits
    until both hold all.
    """
    owner = nodes.make("owner", seed=SEED, config=INTERVAL).start()
    owner.put(*HELD)
    member = nodes.invited(owner, "member", config=INTERVAL)
    member.wait_for_count(OWNER.public, len(HELD))
    owner.stop()
    of_member = [b"of the member %d" % number for number in range(30)]
    member.put(*of_member, feed=OWNER.public)
    member.stop()
    owner.start()
    of_owner = [*more, *(b"of the owner %d" % number for number in range(30))]
    owner.put(*of_owner)

    def converge():
        member.start()
        everything = sorted(HELD + of_member + of_owner)
        for node in (owner, member):
            wait_until(
                lambda node=node: node.values(OWNER.public) == everything, 60, "all is there"
            )

    yield owner, converge


def test_peers_that_lie_cost_a_try_and_a_plan_each(nodes, held_symbols):
    with honest_pair(nodes) as (owner, converge):
        before = own_bytes(owner)
        liars = {
            lie: HostilePeer(
                owner.port, OWNER, make(held_symbols), values=values, source=f"127.0.3.{number}"
            )
            for number, (lie, (make, values)) in enumerate(LIES.items(), 1)
        }
        for peer in liars.values():
            peer.start()
        try:
            for lie, peer in liars.items():
                wait_until(lambda peer=peer: peer.rounds, 30, f"{lie}: it is compared with")
            converge()
            let_each_be_met(liars)
            grown = own_bytes(owner) - before
            print(f"grown by {grown / 1e6:.1f} MB")
        finally:
            for peer in liars.values():
                peer.stop()
        assert grown <= MOST_GROWTH
        for lie, peer in liars.items():
            check_cost(peer, lie)


def let_each_be_met(liars: dict[str, HostilePeer]) -> None:
    """Until each has been met by plans; it goes then, for the next to have its turn.

    The owner asks one peer at a time for what it lacks, and stays with who goes on answering for up
    to a minute.
    """
    left = dict(liars)

    def all_are_met() -> bool:
        for lie in [lie for lie, peer in left.items() if met_by_plans(peer)]:
            left.pop(lie).stop()
        return not left

    wait_until(all_are_met, 90, "plans come to each")


def met_by_plans(peer: HostilePeer) -> bool:
    """Whether the owner twice tried symbols, and then filters; who broke the protocol is let go.

    By the second time a try with a salt would be one too many.
    """
    tried = sum(one["tries"] for one in peer.rounds)
    planned = sum(bool(one[SYNC]) for one in peer.rounds)
    return (tried > 1 and planned > 1) or peer.connections > 5


def check_cost(peer: HostilePeer, lie: str) -> None:
    """No more than one try and one with a salt for each plan, and no try without an end."""
    rounds = peer.rounds
    assert sum(one["tries"] for one in rounds) > 0, f"{lie}: it was never asked for symbols"
    assert sum(one["salted tries"] for one in rounds) <= 1, lie
    for one in rounds:
        assert one["tries"] - one["salted tries"] <= 1, lie
        assert one["plain"] <= MOST_SYMBOLS, lie
        assert one["salted"] <= MOST_SYMBOLS, lie
    without_plan = 0
    for one in rounds[:-1]:
        without_plan = 0 if one[SYNC] else without_plan + bool(one["tries"])
        assert without_plan <= ROUNDS_WITHOUT_PLAN, lie


# Who asks without end


def ask_high(wire, number):
    """Symbols from far behind, of ever other tries."""
    for at in range(500):
        first = random.choice([2**32 - 1, 2**31, 32_768, 100_000])
        wire.send(SKETCH_REQUEST, sketch_request(at, first, 65_536))


def ask_salted(wire, number):
    """Each with a salt of its own: a pass over all values."""
    for at in range(200):
        wire.send(SKETCH_REQUEST, sketch_request(at, 0, 65_536, salt=os.urandom(16)))


def ask_and_leave(wire, number):
    """All there is, and gone before it comes."""
    for at in range(50):
        wire.send(SKETCH_REQUEST, sketch_request(at, 0, 32_768))
    wire.close()


def ask_and_not_read(wire, number):
    """All there is, again and again, which nobody reads."""
    for at in range(2_000):
        wire.send(SKETCH_REQUEST, sketch_request(at % 3, 0, 65_536))


def ask_ranges(wire, number):
    """Parts of the feed of which no symbols are kept."""
    for at in range(200):
        start, end = b"value %06d" % at, b"value %06d" % (at + 3_000)
        bounds = b"".join(len(one).to_bytes(2, "big") + one for one in (start,))
        bounds += b"\0" + len(end).to_bytes(2, "big") + end
        wire.send(SKETCH_REQUEST, sketch_request(at, 0, 8_192, ranges=b"\x01" + bounds))


def want_nothing(wire, number):
    """Values that nobody has, as many as fit."""
    for at in range(40):
        ids = sorted(os.urandom(16) for _ in range(16_000))
        wire.send(VALUES_WANTED, values_wanted(at, ids))


def want_the_same(wire, number):
    """What there is, again and again."""
    ids = sorted(id_of(value) for value in HELD[:200])
    for at in range(400):
        wire.send(VALUES_WANTED, values_wanted(at, ids))


def attack(port, key, doing, number, stop):
    """One connection, again and again."""
    chain = [OWNER.link(key.public)]
    while not stop.is_set():
        with contextlib.suppress(Ended, OSError, AssertionError):
            address = ("127.0.0.1", port)
            with Connection.dial(address, source=f"127.0.4.{number + 1}") as wire:
                wire.shake_hands(OWNER.public, key, chain, extensions=EXTENSIONS)
                wire.socket.settimeout(2.0)
                doing(wire, number)
                stop.wait(1.0)


@pytest.mark.parametrize(
    "doing",
    [
        ask_high,
        ask_salted,
        ask_and_leave,
        ask_and_not_read,
        ask_ranges,
        want_nothing,
        want_the_same,
    ],
)
def test_floods_of_questions_leave_the_honest_what_they_need(nodes, doing):
    with honest_pair(nodes) as (owner, converge):
        before = own_bytes(owner)
        stop, key = threading.Event(), KeyPair.random()
        threads = [
            threading.Thread(target=attack, args=(owner.port, key, doing, number, stop))
            for number in range(FLOODS)
        ]
        for thread in threads:
            thread.start()
        try:
            time.sleep(1.0)
            converge()
            for number in range(10):
                assert owner.put(b"inserted %d" % number) == 1
            grown = own_bytes(owner) - before
            print(f"grown by {grown / 1e6:.1f} MB")
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)
        assert grown <= MOST_GROWTH
        assert_answers(owner)


def assert_answers(owner):
    """Whoever asks after all that is answered."""
    key = KeyPair.random()
    with Connection.dial(("127.0.0.1", owner.port)) as wire:
        wire.shake_hands(OWNER.public, key, [OWNER.link(key.public)], extensions=EXTENSIONS)
        wire.send(DIGEST_REQUEST, digest_request(1))
        wire.send(SKETCH_REQUEST, sketch_request(2, 0, 100))
        kinds = set()
        while not {DIGEST, SKETCH} <= kinds:
            kind, body = wire.receive()
            kinds.add(kind)
            if kind == SKETCH:
                assert Told.parse(body).count == 100
