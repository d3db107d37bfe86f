"""Which links push and which tell: single decisions, and whole networks of the machine alone."""

from __future__ import annotations

import heapq
import random
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.replication.broadcast.broadcast_tree import BroadcastTree, Pull, Tell, ids_of
from hyperbloom.replication.broadcast.wanted_values import SPARE_DUES
from hyperbloom.replication.limits import (
    CATCH_UP_FIRST,
    GRAFT_SECONDS,
    LONGEST_PULL_SECONDS,
    MAX_KNOWN_IDS,
    MAX_TELLERS,
    MAX_TOLD,
    PULL_SECONDS,
    TELL_SECONDS,
    WOKEN_IDS,
)
from hyperbloom.wire.extensions.broadcast_tree import LinkKind
from hyperbloom.wire.limits import MAX_TOLD_IDS

NOW = 100.0
ONE, TWO = b"one", b"two"
(ID,) = ids_of([ONE])


def tree_of(links):
    tree = BroadcastTree()
    return tree, [tree.join((b"key %d" % number,)) for number in range(links)]


def came(tree, link, values=(ONE,), *, now=NOW, is_answer=False):
    return tree.received(link, list(values), now=now, is_answer=is_answer)


def stored(tree, values=(ONE,), low=1):
    tree.stored(list(values), low=low, high=low + len(values) - 1)


def numbered(count, first=0):
    return [number.to_bytes(16, "big") for number in range(first, first + count)]


# Pushing and telling


def test_what_came_is_pushed_to_all_but_who_has_it():
    tree, (one, two, three) = tree_of(3)
    assert came(tree, one) is None
    stored(tree)
    assert [tree.pushes(link, [ID], now=NOW) for link in (one, two, three)] == [False, True, True]
    assert tree.next_deadline is None, "who has it is not told"


def test_who_pushes_what_another_pushed_first_is_to_tell():
    tree, (one, two, three) = tree_of(3)
    came(tree, one)
    assert came(tree, two) == Pull(two, LinkKind.TELL, ())
    assert (one.pushes, two.pushes, three.pushes) == (True, False, True)
    assert came(tree, two) is None, "it was said"
    stored(tree, [TWO])
    assert not tree.pushes(two, ids_of([TWO]), now=NOW)
    assert tree.wake(now=NOW + TELL_SECONDS) == [Tell(two, ids_of([TWO]))]


def test_the_second_copy_from_the_same_peer_shows_nothing():
    tree, (one, _) = tree_of(2)
    came(tree, one)
    assert came(tree, one) is None
    assert one.pushes


def test_what_was_asked_for_shows_nothing_of_the_tree():
    tree, (one, two) = tree_of(2)
    came(tree, one, is_answer=True)
    assert came(tree, two) is None
    came(tree, one, [TWO])
    assert came(tree, two, [TWO], is_answer=True) is None
    assert one.pushes
    assert two.pushes


def test_a_link_is_kept_where_the_one_that_was_quicker_pushes_no_more():
    tree, (one, two, _) = tree_of(3)
    came(tree, one)
    tree.pulled(one, LinkKind.TELL, [])
    assert came(tree, two) is None
    came(tree, two, [TWO])
    tree.leave(two)
    assert came(tree, one, [TWO]) is None


def test_a_peer_without_the_extension_is_no_part_of_the_tree():
    tree, (one, two) = tree_of(2)
    assert came(tree, None) is None
    assert came(tree, one) is None, "who is not asked to push may stop any time"
    assert two.pushes


def test_what_a_catching_up_node_got_is_told_over_all_links():
    tree, (one, two, three) = tree_of(3)
    came(tree, one, is_answer=True)
    stored(tree)
    assert not any(tree.pushes(link, [ID], now=NOW) for link in (one, two, three))
    assert tree.wake(now=NOW + TELL_SECONDS) == [Tell(two, [ID]), Tell(three, [ID])]


def test_what_the_peer_told_meanwhile_is_not_told_to_it():
    tree, (one, two) = tree_of(2)
    tree.pulled(two, LinkKind.TELL, [])
    came(tree, one)
    stored(tree)
    assert not tree.pushes(two, [ID], now=NOW)
    tree.told(two, [ID], now=NOW)
    assert tree.wake(now=NOW + TELL_SECONDS) == []


def test_one_link_alone_is_pushed_to_and_nothing_is_remembered():
    tree, (one,) = tree_of(1)
    came(tree, one)
    stored(tree)
    assert not tree.is_used
    assert tree.pulled(one, LinkKind.AS_BEFORE, [ID]) == ([], [ID])


def test_many_ids_are_told_at_once_and_in_parts_in_order():
    tree, (_, two) = tree_of(2)
    tree.pulled(two, LinkKind.TELL, [])
    ids = numbered(MAX_TOLD_IDS + 1)
    assert not tree.pushes(two, ids[::-1], now=NOW)
    assert tree.next_deadline == NOW
    assert tree.wake(now=NOW) == [Tell(two, ids[:-1]), Tell(two, ids[-1:])]


# Asking


def test_what_was_told_is_waited_for_and_then_pulled_along_a_link_that_pushes():
    tree, (one, two) = tree_of(2)
    two.pushes = False
    tree.told(two, [ID], now=NOW)
    assert tree.next_deadline == NOW + GRAFT_SECONDS
    assert tree.wake(now=NOW + GRAFT_SECONDS - 0.01) == []
    assert tree.wake(now=NOW + GRAFT_SECONDS) == [Pull(two, LinkKind.PUSH, [ID])]
    assert two.pushes
    assert one.pushes


def test_what_comes_while_it_is_waited_for_is_not_asked_for():
    tree, (one, two) = tree_of(2)
    two.pushes = False
    tree.told(two, [ID], now=NOW)
    came(tree, one)
    assert tree.wake(now=NOW + GRAFT_SECONDS) == [], "it is on its way to the disk"
    stored(tree)
    assert tree.next_deadline is None
    assert not two.told


def test_a_node_with_one_link_never_waits():
    tree, (one,) = tree_of(1)
    one.pushes = False
    tree.catches_up(until=NOW + 60)
    tree.told(one, [ID], now=NOW)
    assert tree.wake(now=NOW) == [Pull(one, LinkKind.PUSH, [ID])]
    came(tree, one)
    assert tree.next_deadline is None


def test_a_link_that_pushes_and_tells_all_the_same_is_not_waited_for():
    tree, (one, two) = tree_of(2)
    tree.told(two, [ID], now=NOW)
    assert tree.wake(now=NOW) == [Pull(two, LinkKind.PUSH, [ID])]
    tree.told(one, [ID], now=NOW)
    assert tree.wake(now=NOW) == [], "it was asked of the other"


def test_what_is_offered_is_asked_of_one_and_changes_no_link():
    tree, (one, two) = tree_of(2)
    one.pushes = two.pushes = False
    tree.told(one, [ID], now=NOW, is_offered=True)
    tree.told(two, [ID], now=NOW, is_offered=True)
    assert tree.wake(now=NOW) == [Pull(one, LinkKind.AS_BEFORE, [ID])]
    assert not one.pushes


def test_while_much_is_on_its_way_nothing_of_it_is_asked_for():
    tree, (one, _) = tree_of(2)
    tree.catches_up(until=NOW + 1)
    tree.told(one, [ID], now=NOW)
    assert tree.wake(now=NOW) == []
    assert tree.next_deadline == NOW + 1
    assert tree.wake(now=NOW + 1) == [Pull(one, LinkKind.PUSH, [ID])]


def test_who_sends_much_for_ever_keeps_nothing_from_being_asked_for():
    tree, (one, _) = tree_of(2)
    tree.told(one, [ID], now=NOW)
    now = NOW
    while now < NOW + CATCH_UP_FIRST:
        tree.catches_up(until=now + 1)
        assert tree.wake(now=now) == []
        now += 0.5
    tree.catches_up(until=now + 1)
    assert tree.next_deadline == NOW + CATCH_UP_FIRST
    assert tree.wake(now=now) == [Pull(one, LinkKind.PUSH, [ID])]


def test_the_next_one_is_asked_where_one_does_not_send_and_it_is_asked_last_from_then_on():
    tree, (one, two) = tree_of(2)
    tree.told(one, [ID], now=NOW)
    tree.told(two, [ID], now=NOW)
    assert tree.wake(now=NOW) == [Pull(one, LinkKind.PUSH, [ID])]
    late = NOW + PULL_SECONDS
    assert tree.wake(now=late) == [Pull(two, LinkKind.PUSH, [ID])]
    (other,) = ids_of([TWO])
    tree.told(one, [other], now=late)
    assert tree.wake(now=late) == [Pull(one, LinkKind.PUSH, [other])]
    tree.told(two, [other], now=late)
    assert tree.wake(now=late) == [Pull(two, LinkKind.PUSH, [other])], "nobody waits for it"
    assert tree.wake(now=late + PULL_SECONDS) == []
    assert tree.next_deadline is None, "nobody has it"
    assert (one.told, two.told) == ({}, {})


def test_who_sends_other_values_is_waited_for_longer_and_not_for_ever():
    tree, (one, two) = tree_of(2)
    tree.told(one, [ID], now=NOW)
    tree.told(two, [ID], now=NOW)
    tree.wake(now=NOW)
    now = NOW
    while now < NOW + LONGEST_PULL_SECONDS:
        came(tree, one, [b"at %f" % now], now=now)
        assert tree.wake(now=now) == []
        now += PULL_SECONDS / 2
    came(tree, one, [b"still"], now=now)
    late = tree.next_deadline
    assert late <= NOW + LONGEST_PULL_SECONDS + PULL_SECONDS
    assert tree.wake(now=late) == [Pull(two, LinkKind.PUSH, [ID])]


def test_what_a_peer_that_left_was_asked_for_is_asked_of_another_at_once():
    tree, (one, two, _) = tree_of(3)
    tree.told(one, [ID], now=NOW)
    tree.told(two, [ID], now=NOW)
    tree.wake(now=NOW)
    tree.leave(one)
    assert tree.next_deadline < NOW
    assert tree.wake(now=NOW + 0.1) == [Pull(two, LinkKind.PUSH, [ID])]


def test_who_asks_is_told_where_the_values_are():
    tree, (one, _) = tree_of(2)
    tree.stored([ONE, TWO], low=5, high=7)  # one of three was there before
    first, second = ids_of([ONE, TWO])
    unknown = bytes(16)
    places, others = tree.pulled(one, LinkKind.AS_BEFORE, [first, second, unknown])
    assert places == [(5, 6, first), (6, 7, second)]
    assert others == [unknown]
    came(tree, one, [b"not on disk"])
    assert tree.pulled(one, LinkKind.PUSH, ids_of([b"not on disk"]))[1] == ids_of([b"not on disk"])


# Bounds


def woken(tree, *, now=NOW):
    """All that there is to do now, in as many pieces as it takes."""
    commands = []
    while tree.next_deadline is not None and tree.next_deadline <= now:
        commands += tree.wake(now=now)
    return commands


def tree_of_paths(*paths):
    tree = BroadcastTree()
    return tree, [tree.join(tuple(path.encode().split())) for path in paths]


def test_a_peer_alone_has_half_of_the_room_and_another_one_a_third():
    tree, (one, two) = tree_of(2)
    half = MAX_TOLD // 2
    tree.told(one, numbered(half + 1), now=NOW)
    assert len(one.told) == len(tree._wanted) == half
    asked = [value_id for pull in woken(tree) for value_id in pull.ids]
    assert sorted(asked) == numbered(half)
    tree.told(one, numbered(1, half), now=NOW)
    assert len(one.told) == half, "what was asked for counts until it comes"
    tree.told(two, numbered(MAX_TOLD, MAX_TOLD), now=NOW)
    assert len(two.told) == half // 2
    woken(tree)
    woken(tree, now=NOW + PULL_SECONDS)
    assert len(one.told) + len(two.told) == 0, "who does not send has its room again"


def test_what_a_branch_may_tell_does_not_grow_with_its_keys():
    tree, (honest, *members) = tree_of_paths("honest", *(f"member key{n}" for n in range(1_000)))
    for number, link in enumerate(members):
        tree.told(link, numbered(100, 100 * number), now=NOW)
    assert sum(len(link.told) for link in members) <= MAX_TOLD // 2
    tree.told(honest, numbered(4_096, 10**6), now=NOW)
    assert len(honest.told) == 4_096


def test_a_group_of_five_hundred_below_one_key_is_heard_in_full_while_nobody_else_tells():
    tree, group = tree_of_paths(*(f"coordinator member{n}" for n in range(500)))
    for number, link in enumerate(group):
        tree.told(link, numbered(30, 30 * number), now=NOW)
    assert len(tree._wanted) == 30 * 500
    for link in group:
        tree.told(link, numbered(100, 10**6), now=NOW)
    assert len(tree._wanted) == 30 * 500 + 100, "all told the same, and some of them are enough"


def test_of_the_tellers_of_one_id_each_branch_has_its_part_and_below_it_each_key():
    tree, links = tree_of_paths(
        *(f"member key{n}" for n in range(20)), "group liar", "group honest", "other"
    )
    *members, _, honest, other = links
    for link in links:
        tree.told(link, [ID], now=NOW)
    tellers = tree._wanted.get(ID).tellers
    assert len(tellers) == MAX_TELLERS
    assert {honest, other} <= set(tellers)
    assert tellers[0] is members[0]
    assert sum(len(link.told) for link in links) == MAX_TELLERS


def test_a_branch_of_which_one_did_not_send_is_asked_last_whatever_keys_it_comes_with():
    tree, (liar, *others, honest) = tree_of_paths("m 1", "m 2", "m 3", "honest")
    tree.told(liar, [ID], now=NOW)
    woken(tree)
    woken(tree, now=NOW + PULL_SECONDS)
    tree.leave(liar)
    for link in others:
        tree.leave(link)
    others = [tree.join((b"m", b"new %d" % number)) for number in range(6)]
    now = NOW + PULL_SECONDS
    (other_id,) = ids_of([TWO])
    for link in (*others, honest):
        tree.told(link, [other_id], now=now)
    assert woken(tree, now=now) == [Pull(honest, LinkKind.PUSH, [other_id])]


def test_below_one_coordinator_he_who_did_not_send_is_asked_last_as_well():
    tree, (liar, again, honest) = tree_of_paths("c m 1", "c m 2", "c honest")
    tree.told(liar, [ID], now=NOW)
    woken(tree)
    now = NOW + PULL_SECONDS
    woken(tree, now=now)
    (other_id,) = ids_of([TWO])
    tree.told(again, [other_id], now=now)
    tree.told(honest, [other_id], now=now)
    assert woken(tree, now=now) == [Pull(honest, LinkKind.PUSH, [other_id])]


def test_one_wake_looks_at_so_many_ids_and_the_next_one_goes_on():
    tree, links = tree_of(4)
    for number, link in enumerate(links):
        tree.told(link, numbered(1_000, 1_000 * number), now=NOW)
    wakes = 0
    while tree.next_deadline == NOW:
        commands = tree.wake(now=NOW)
        assert 0 < sum(len(pull.ids) for pull in commands) <= WOKEN_IDS
        wakes += 1
    assert wakes == -(-4_000 // WOKEN_IDS)
    assert tree.take_work() == dict.fromkeys(links, 1_000)


def test_who_leaves_takes_along_what_it_told_alone_a_piece_at_a_time():
    tree, (one, two, three) = tree_of(3)
    tree.told(one, numbered(1_000), now=NOW)
    tree.told(two, numbered(1_000, 500), now=NOW)
    woken(tree)
    tree.leave(one)
    assert len(tree._wanted) == 1_500, "nothing is done at once"
    tree.wake(now=NOW)
    assert len(one.told) == 1_000 - WOKEN_IDS
    woken(tree)
    assert (len(one.told), len(tree._wanted)) == (0, 1_000)
    assert all(tree._wanted.get(value_id).tellers == [two] for value_id in numbered(1_000, 500))
    assert three.told == {}


def test_the_queue_of_what_is_due_does_not_grow_by_what_was_put_off():
    tree, (one, two) = tree_of(2)
    one.pushes = two.pushes = False
    tree.told(one, numbered(100), now=NOW)
    for number in range(1, 2_000):
        tree._wanted.look_at(numbered(100), NOW + number)
        assert tree._wanted._dues == sum(len(ids) for _, _, ids in tree._wanted._due)
        assert tree._wanted._dues <= 2 * 100 + SPARE_DUES + 100
    assert tree.next_deadline == NOW + 1_999


# On disk


def test_what_could_not_be_written_is_asked_of_another_one_that_told_it():
    tree, (one, two, _) = tree_of(3)
    came(tree, one)
    tree.told(two, [ID], now=NOW)
    assert woken(tree) == [], "it came, and may be on disk soon"
    tree.not_stored([ONE], now=NOW + 1)
    assert woken(tree, now=NOW + 1) == [Pull(two, LinkKind.PUSH, [ID])]
    came(tree, two, now=NOW + 1)
    stored(tree)
    assert not tree._wanted._wanted
    tree.told(one, [ID], now=NOW + 2)
    assert tree.next_deadline is None


def test_what_is_kept_out_is_asked_of_nobody():
    tree, (one, two) = tree_of(2)
    came(tree, one)
    tree.told(two, [ID], now=NOW)
    tree.kept_out([ONE])
    tree.told(one, [ID], now=NOW)
    assert tree.next_deadline is None
    assert not two.told


def test_who_pushes_second_is_to_tell_though_the_first_is_not_on_disk_yet():
    tree, (one, two) = tree_of(2)
    came(tree, one)
    assert came(tree, two) == Pull(two, LinkKind.TELL, ())
    stored(tree)
    assert not any(tree.pushes(link, [ID], now=NOW) for link in (one, two))


def test_who_told_what_came_of_another_is_not_sent_it():
    tree, (one, two, three) = tree_of(3)
    two.pushes = False
    tree.told(two, [ID], now=NOW)
    came(tree, one)
    stored(tree)
    assert [tree.pushes(link, [ID], now=NOW) for link in (one, two, three)] == [False, False, True]


def test_of_more_values_than_are_remembered_the_oldest_is_forgotten():
    tree, (one, _) = tree_of(2)
    values = [b"%d" % number for number in range(MAX_KNOWN_IDS + 1)]
    stored(tree, values)
    ids = ids_of(values)
    places, others = tree.pulled(one, LinkKind.AS_BEFORE, ids)
    assert (len(places), others) == (MAX_KNOWN_IDS, ids[:1])


def test_a_place_that_is_given_again_has_nothing_of_who_had_it():
    tree, (one, two, _) = tree_of(3)
    came(tree, two)
    stored(tree)
    tree.leave(two)
    again = tree.join((b"again",))
    assert again.bit == two.bit
    assert tree.pushes(again, [ID], now=NOW)
    tree.leave(one)
    tree.leave(again)
    assert not tree._known, "nothing is remembered with one link"


# Networks


class Network:
    """Machines along edges that carry messages in `delay` seconds; all that they say is obeyed."""

    def __init__(self, seed, nodes, edges, *, spread=0.0):
        self.chance = random.Random(seed)
        self.trees = [BroadcastTree() for _ in range(nodes)]
        self.values = [set() for _ in range(nodes)]
        self.log = [[] for _ in range(nodes)]
        self.now = NOW
        self.links = {}
        self.queue, self.order = [], count()
        self.duplicates = self.copies = 0
        self.spread = spread
        for one, two in edges:
            self.connect(one, two)

    def connect(self, one, two):
        self.links[one, two] = self.trees[one].join((b"%d" % two,))
        self.links[two, one] = self.trees[two].join((b"%d" % one,))

    def cut(self, one, two):
        for here, there in ((one, two), (two, one)):
            self.trees[here].leave(self.links.pop((here, there)))

    def send(self, source, target, kind, what):
        at = self.now + 0.02 + self.spread * self.chance.random()
        heapq.heappush(self.queue, (at, next(self.order), source, target, kind, what))

    def put(self, node, value):
        self._store(node, value)

    def _store(self, node, value):
        tree = self.trees[node]
        self.values[node].add(value)
        self.log[node].append(value)
        tree.stored([value], low=len(self.log[node]), high=len(self.log[node]))
        for (here, there), link in list(self.links.items()):
            is_pushed = here == node and (
                not tree.is_used or tree.pushes(link, ids_of([value]), now=self.now)
            )
            if is_pushed:
                self.send(node, there, "data", [value])
        self.do(node, [])

    def do(self, node, commands):
        tree = self.trees[node]
        whose = {link: there for (here, there), link in self.links.items() if here == node}
        for command in (*commands, *tree.wake(now=self.now)):
            if isinstance(command, Tell):
                self.send(node, whose[command.link], "told", command.ids)
            else:
                self.send(node, whose[command.link], "pull", (command.kind, command.ids))

    def take(self, source, target, kind, what):
        link, tree = self.links.get((target, source)), self.trees[target]
        if link is None:
            return
        if kind == "told":
            tree.told(link, what, now=self.now)
            self.do(target, [])
        elif kind == "pull":
            places, _ = tree.pulled(link, *what)
            found = [v for v in self.log[target] if ids_of([v])[0] in {one for *_, one in places}]
            if not places and what[1]:  # with one link nothing is remembered: the store finds it
                found = [v for v in self.log[target] if ids_of([v])[0] in what[1]]
            if found:
                self.send(target, source, "data", found)
        else:
            said = tree.received(link, what, now=self.now, is_answer=False)
            self.copies += len(what)
            self.duplicates += len(self.values[target].intersection(what))
            for value in what:
                if value not in self.values[target]:
                    self._store(target, value)
            self.do(target, [] if said is None else [said])

    def run(self, seconds):
        end = self.now + seconds
        while True:
            wakes = [
                (at, node)
                for node, t in enumerate(self.trees)
                if (at := t.next_deadline) is not None
            ]
            at = min([one[0] for one in (*wakes, *self.queue[:1])], default=end)
            if at >= end:
                self.now = end
                return
            self.now = max(self.now, at)
            if self.queue and self.queue[0][0] <= self.now:
                self.take(*heapq.heappop(self.queue)[2:])
            else:
                self.do(min(wakes)[1], [])


def random_edges(chance, nodes, dials):
    edges = {(number, chance.randrange(number)) for number in range(1, nodes)}
    for number in range(nodes):
        for other in chance.sample([n for n in range(nodes) if n != number], min(dials, nodes - 1)):
            if (other, number) not in edges:
                edges.add((number, other))
    return sorted(edges)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    nodes=st.integers(2, 12),
    dials=st.integers(1, 4),
    spread=st.sampled_from([0.0, 0.05, 0.6]),
)
def test_each_value_comes_everywhere_however_slow_the_links_are(seed, nodes, dials, spread):
    chance = random.Random(seed)
    network = Network(seed, nodes, random_edges(chance, nodes, dials), spread=spread)
    for number in range(12):
        network.put(chance.randrange(nodes), b"%d" % number)
        network.run(chance.choice([0.0, 0.05, 1.0]))
    network.run(30)
    assert [len(values) for values in network.values] == [12] * nodes
    assert all(tree.next_deadline is None for tree in network.trees)


def test_after_some_values_thirty_nodes_have_a_tree_and_each_value_comes_once_and_quickly():
    chance = random.Random(3)
    network = Network(3, 30, random_edges(chance, 30, 3))
    for number in range(20):
        network.put(number % 5, b"first %d" % number)
        network.run(2)
    network.copies = network.duplicates = 0
    for number in range(20):
        network.put(number % 5, b"then %d" % number)
        network.run(0.02 * 15)
        assert all(b"then %d" % number in values for values in network.values), "pushed, not told"
        network.run(2)
    assert (network.copies, network.duplicates) == (29 * 20, 0)


@pytest.mark.parametrize("seed", range(5))
def test_the_tree_mends_where_links_are_cut(seed):
    chance = random.Random(seed)
    edges = random_edges(chance, 20, 3)
    network = Network(seed, 20, edges)
    for number in range(10):
        network.put(number % 3, b"first %d" % number)
        network.run(2)
    for one, two in chance.sample(edges[20:], 8):
        network.cut(one, two)
    for number in range(10):
        network.put(number % 3, b"then %d" % number)
        network.run(3)
    assert all(len(values) == 20 for values in network.values)
