from __future__ import annotations

import gc
import itertools
import math
import random
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyperbloom.keys import Identity
from hyperbloom.trust import (
    LINK_FORMAT_DRAFT,
    LinkGraph,
    Member,
    TrustLink,
    automatic_nonce,
    issue_link,
    mark_of,
    parse_link,
    verify_chain,
)

NOW = 100.0
FEED = 0

Edge = tuple[int, int, int]


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def link(trustee: int, expires: float, nonce: int = 0) -> TrustLink:
    """A link as the graph sees it, which does not look at signatures."""
    return TrustLink(
        public_key=key(trustee), expires=expires, nonce=key(nonce), signature=bytes(64)
    )


def graph_of(edges: list[Edge]) -> LinkGraph:
    graph = LinkGraph(key(FEED))
    for nonce, (issuer, trustee, expires) in enumerate(edges):
        graph.add(key(issuer), link(trustee, expires, nonce))
    return graph


def all_paths(edges: list[Edge], target: int, at: float) -> Iterator[list[Edge]]:
    """Every way of up to five unexpired links from the feed to a key, without insight."""
    ways: list[list[Edge]] = [[edge] for edge in edges if edge[0] == FEED and edge[2] >= at]
    for _ in range(5):
        yield from (way for way in ways if way[-1][1] == target)
        ways = [
            [*way, edge]
            for way, edge in itertools.product(ways, edges)
            if edge[0] == way[-1][1] and edge[2] >= at and edge[1] not in {e[0] for e in way}
        ]


def best(edges: list[Edge], target: int, at: float) -> tuple[int, int] | None:
    """Length and expiry of the best way: shortest, then latest."""
    ways = [(len(way), -min(e[2] for e in way)) for way in all_paths(edges, target, at)]
    return (min(ways)[0], -min(ways)[1]) if ways else None


NODES = st.integers(0, 7)
EDGES = st.lists(st.tuples(NODES, NODES, st.integers(95, 110)), max_size=18)
# Long ways are rare among random edges, so half of the graphs have one.
LONG = st.permutations(range(1, 8)).map(
    lambda order: [(a, b, 105) for a, b in itertools.pairwise([FEED, *order])]
)


class TestAgainstAllPaths:
    @settings(deadline=None, max_examples=150)
    @given(EDGES, st.one_of(st.just([]), LONG))
    def test_random_graphs(self, edges: list[Edge], long: list[Edge]) -> None:
        edges += long
        graph = graph_of(edges)
        members = {member.key: member for member in graph.members(now=NOW)}
        for target in range(1, 8):
            expected = best(edges, target, NOW)
            chain = graph.shortest_chain(key(target), now=NOW)
            member = members.get(key(target))
            if expected is None:
                assert chain is None
                assert member is None
                continue
            assert chain is not None
            assert member is not None
            assert (len(chain), chain.expires) == expected
            assert (member.depth, member.expires) == expected
            assert chain.holder == key(target)
            hops = list(chain.issuers())
            assert member.introduced_by == hops[-1][0]
            for issuer, hop in hops:
                assert (issuer, hop) in graph.links()

    @settings(deadline=None, max_examples=50)
    @given(EDGES, st.randoms(use_true_random=False))
    def test_order_of_adding_does_not_matter(
        self, edges: list[Edge], source: random.Random
    ) -> None:
        graph = LinkGraph(key(FEED))
        shuffled = list(enumerate(edges))
        source.shuffle(shuffled)
        for nonce, (issuer, trustee, expires) in shuffled:
            graph.add(key(issuer), link(trustee, expires, nonce))
        assert graph.members(now=NOW) == graph_of(edges).members(now=NOW)


class TestShortestChain:
    def test_the_feed_itself(self) -> None:
        chain = LinkGraph(key(FEED)).shortest_chain(key(FEED), now=NOW)
        assert chain is not None
        assert len(chain) == 0

    def test_a_stranger(self) -> None:
        assert graph_of([(0, 1, 200)]).shortest_chain(key(2), now=NOW) is None

    def test_five_links_and_six(self) -> None:
        graph = graph_of([(i, i + 1, 200) for i in range(6)])
        chain = graph.shortest_chain(key(5), now=NOW)
        assert chain is not None
        assert len(chain) == 5
        assert graph.shortest_chain(key(6), now=NOW) is None
        assert [member.depth for member in graph.members(now=NOW)] == [1, 2, 3, 4, 5]

    def test_shorter_beats_longer_lasting(self) -> None:
        graph = graph_of([(0, 1, 900), (1, 2, 900), (0, 2, 101)])
        chain = graph.shortest_chain(key(2), now=NOW)
        assert chain is not None
        assert (len(chain), chain.expires) == (1, 101)
        # Once that link is gone the longer way serves.
        later = graph.shortest_chain(key(2), now=102)
        assert later is not None
        assert (len(later), later.expires) == (2, 900)

    def test_latest_expiry_of_the_whole_way(self) -> None:
        # The way whose last link lasts longest, over 1, is held up by its first.
        graph = graph_of([(0, 1, 110), (1, 3, 900), (0, 2, 150), (2, 3, 140)])
        chain = graph.shortest_chain(key(3), now=NOW)
        assert chain is not None
        assert chain.expires == 140
        assert chain.links[0].public_key == key(2)

    @pytest.mark.parametrize("order", list(itertools.permutations(range(1, 4))))
    def test_equal_ways_go_by_the_lowest_issuer(self, order: tuple[int, ...]) -> None:
        edges = [edge for way in order for edge in ((0, way, 200), (way, 9, 300))]
        chain = graph_of(edges).shortest_chain(key(9), now=NOW)
        assert chain is not None
        assert chain.links[0].public_key == key(1)

    def test_renewed_link(self) -> None:
        graph = graph_of([(0, 1, 101), (0, 1, 300), (0, 1, 200)])
        chain = graph.shortest_chain(key(1), now=NOW)
        assert chain is not None
        assert chain.expires == 300

    def test_expiry_boundary_and_leeway(self) -> None:
        graph = graph_of([(0, 1, 100)])
        later = math.nextafter(100.0, math.inf)
        assert graph.shortest_chain(key(1), now=100.0) is not None
        assert graph.shortest_chain(key(1), now=later) is None
        assert graph.shortest_chain(key(1), now=105.0, leeway=5.0) is not None
        assert graph.members(now=later) == []
        assert len(graph.members(now=105.0, leeway=5.0)) == 1

    def test_circles_and_links_to_oneself(self) -> None:
        graph = graph_of([(0, 0, 200), (0, 1, 200), (1, 0, 200), (1, 1, 200), (1, 2, 200)])
        assert [member.key for member in graph.members(now=NOW)] == [key(1), key(2)]

    def test_chain_of_real_links_verifies(self) -> None:
        people = [Identity(bytes([number]) * 32) for number in range(1, 5)]
        graph = LinkGraph(people[0].public_key)
        for issuer, trustee in itertools.pairwise(people):
            real = issue_link(issuer, trustee.public_key, expires=NOW, nonce=bytes(32))
            graph.add(issuer.public_key, real)
        chain = graph.shortest_chain(people[3].public_key, now=NOW)
        assert chain is not None
        assert verify_chain(people[0].public_key, chain.to_wire(), now=NOW) == chain


class TestMembers:
    def test_nearest_first_then_by_key(self) -> None:
        graph = graph_of([(0, 5, 200), (0, 2, 150), (5, 1, 300), (2, 9, 120), (7, 8, 200)])
        assert graph.members(now=NOW) == [
            Member(key=key(2), depth=1, introduced_by=key(0), expires=150),
            Member(key=key(5), depth=1, introduced_by=key(0), expires=200),
            Member(key=key(1), depth=2, introduced_by=key(5), expires=200),
            Member(key=key(9), depth=2, introduced_by=key(2), expires=120),
        ]


class TestWhatIsKept:
    def test_add_tells_what_is_new(self) -> None:
        graph = LinkGraph(key(FEED))
        assert graph.add(key(0), link(1, 200))
        assert not graph.add(key(0), link(1, 200))
        assert graph.add(key(0), link(1, 200, nonce=1))
        assert graph.add(key(1), link(1, 200))
        assert len(graph.links()) == len(graph) == 3
        assert [graph.count_of(key(number)) for number in range(3)] == [2, 1, 0]

    def test_links_come_back_as_they_went_in(self) -> None:
        people = [Identity(bytes([number]) * 32) for number in range(4)]
        issued = [
            (
                issuer.public_key,
                issue_link(issuer, trustee.public_key, expires=NOW + 0.1, nonce=bytes(32)),
            )
            for issuer, trustee in itertools.permutations(people, 2)
        ]
        graph = LinkGraph(people[0].public_key)
        for issuer, one in issued:
            graph.add(issuer, one)
        assert sorted(graph.links(), key=str) == sorted(issued, key=str)
        assert all(graph.has(*one) for one in issued)
        assert all(graph.between(one[0], one[1].public_key) == [one[1]] for one in issued)

    def test_links_without_an_expiry(self) -> None:
        owner, member = (Identity(bytes([number]) * 32) for number in (1, 2))
        draft = LINK_FORMAT_DRAFT
        one = issue_link(owner, member.public_key, expires=math.inf, nonce=bytes(32), format=draft)
        graph = LinkGraph(owner.public_key, draft)
        assert graph.add(owner.public_key, one)
        chain = graph.shortest_chain(member.public_key, now=NOW)
        assert chain is not None
        assert chain.links == (one,)
        assert chain.expires == math.inf
        graph.prune(before=math.inf)
        assert graph.links() == [(owner.public_key, one)]

    def test_a_link_of_another_form_is_refused(self) -> None:
        with pytest.raises(ValueError, match="no link of a feed whose links have the form draft"):
            LinkGraph(key(FEED), LINK_FORMAT_DRAFT).add(key(0), link(1, 200))

    def test_bytes_that_look_like_a_link_between_two_are_none(self) -> None:
        """What a member chose, the end of one link and the beginning of the next, is no link."""
        graph = graph_of([(0, 1, 200), (0, 2, 200)])
        both = b"".join(one.to_bytes() for _, one in graph.links())
        # The version is the first byte: a link may seem to begin wherever there is a 1.
        size = len(both) // 2
        starts = [start for start in range(1, size) if both[start] == 1]
        assert starts
        for start in starts:
            seeming = parse_link(both[start : start + size])
            assert not graph.has(key(0), seeming)
            assert graph.add(key(0), seeming)
            assert graph.has(key(0), seeming)
            assert not graph.add(key(0), seeming)

    def test_links_that_expired_before_a_moment_are_forgotten(self) -> None:
        edges = [(0, 1, 99), (0, 2, 100), (0, 1, 98), (1, 3, 99), (0, 4, 101)]
        graph = graph_of(edges)
        graph.prune(before=NOW)
        assert graph.links() == [(key(0), link(2, 100, 1)), (key(0), link(4, 101, 4))]
        assert len(graph) == 2
        assert graph.count_of(key(1)) == 0
        assert graph.add(key(0), link(1, 99)), "it is as if it had never been there"
        graph.prune(before=math.inf)
        assert graph.links() == []

    def test_what_the_feed_does_not_reach_is_forgotten(self) -> None:
        edges = [(0, 1, 200), (1, 2, 300), (2, 3, 400), (0, 4, 99), (4, 5, 1e300), (6, 7, 1e300)]
        graph = graph_of(edges)
        gone = graph.prune(before=NOW)
        assert {(issuer, one.public_key) for issuer, one in gone} == {
            (key(0), key(4)),
            (key(4), key(5)),
            (key(6), key(7)),
        }
        assert len(graph) == 3
        # Below a denied key all goes, but for what is to be kept; the link to it stays.
        assert graph.prune(before=NOW, without={key(1)}, keep={key(2)}) == [
            (key(1), link(2, 300, 1))
        ]
        assert [one.public_key for _, one in graph.links()] == [key(1), key(3)]

    def test_a_link_that_shortens_a_way_through_a_key_falls_with_it(self) -> None:
        graph = graph_of([(0, 1, 200), (1, 2, 200)])
        nonce = automatic_nonce((mark_of(key(1)),), key(2))
        short = TrustLink(public_key=key(2), expires=300, nonce=nonce, signature=bytes(64))
        graph.add(key(0), short)
        chain = graph.shortest_chain(key(2), now=NOW)
        assert chain is not None
        assert chain.links == (short,)
        denied = {key(1), mark_of(key(1))}
        assert graph.shortest_chain(key(2), now=NOW, without=denied) is None
        assert graph.members(now=NOW, without=denied) == []
        # A link by hand to the same key holds on, though it ends earlier.
        graph.add(key(0), link(2, 150))
        chain = graph.shortest_chain(key(2), now=NOW, without=denied)
        assert chain is not None
        assert chain.links == (link(2, 150),)
        assert (key(0), short) in graph.prune(before=NOW, without=denied)
        assert (key(0), link(2, 150)) in graph.links()

    def test_whether_a_key_was_ever_named(self) -> None:
        graph = graph_of([(0, 1, 10), (7, 8, 200)])
        assert graph.names(key(1)), "expired"
        assert graph.names(key(8)), "out of reach"
        assert not graph.names(key(7)), "it only issued one"

    def test_a_thousand_links_are_kept_in_few_pieces(self) -> None:
        """Members come and go by the thousand: no small object of each stays (graph.py)."""
        graph = LinkGraph(key(FEED))
        gc.collect()
        tracemalloc.start()
        try:
            for trustee in range(1, 1_001):
                graph.add(key(FEED), link(trustee, 200.0, trustee))
            traces = tracemalloc.take_snapshot().statistics("filename")
        finally:
            tracemalloc.stop()
        kept = sum(one.size for one in traces if "trust" in one.traceback[0].filename)
        count = sum(one.count for one in traces if "trust" in one.traceback[0].filename)
        assert len(graph) == 1_000
        assert kept <= 1_000 * 137 * 1.2 + 10_000
        assert count <= 20

    def test_refuses_a_feed_key_of_another_length(self) -> None:
        with pytest.raises(ValueError, match="feed key"):
            LinkGraph(b"short")


@settings(deadline=None, max_examples=150)
@given(EDGES, st.one_of(st.just([]), LONG), st.sets(NODES, max_size=3))
def test_without_some_keys_it_is_as_if_they_had_no_links(
    edges: list[Edge], long: list[Edge], denied: set[int]
) -> None:
    edges += long
    graph, without = graph_of(edges), {key(number) for number in denied}
    left = graph_of([edge for edge in edges if not denied & {edge[0], edge[1]}])
    everyone = [key(number) for number in range(8)]
    writers = graph.writers_among([*everyone, b"s" * 32], now=NOW, without=without)
    for who in everyone:
        chain = graph.shortest_chain(who, now=NOW, without=without)
        expected = None if who in without else left.shortest_chain(who, now=NOW)
        assert (chain is None) == (expected is None)
        assert (who in writers) == (chain is not None)
        if chain is not None and expected is not None:
            assert not without & set(chain.keys)
            assert len(chain) == len(expected)
    if FEED not in denied:
        shown = {member.key for member in graph.members(now=NOW, without=without)}
        assert shown == writers - {key(FEED)}
    assert b"s" * 32 not in writers


class TestSurplus:
    """Whose links go where there is no room: those of who has most."""

    def take(self, graph: LinkGraph, *newcomer: int, most: int = 99) -> list[tuple[int, int]]:
        gone = graph.surplus(
            [key(FEED), *map(key, newcomer)], most=most, now=NOW, keep={key(FEED), key(1)}
        )
        return [
            (int.from_bytes(issuer, "big"), int.from_bytes(one.public_key, "big"))
            for issuer, one in gone
        ]

    def test_the_heaviest_branch_gives_its_newest(self) -> None:
        edges = [(0, 1, 200), (0, 2, 200), (1, 10, 200), *((2, n, 200) for n in range(20, 40))]
        assert self.take(graph_of(edges), 1, 11, most=3) == [(2, 39), (2, 38), (2, 37)]
        assert len(self.take(graph_of(edges), 1, 11)) == 9, "half of what it has more"

    def test_who_has_most_gets_no_room(self) -> None:
        edges = [(0, 1, 200), (0, 2, 200), (1, 10, 200), *((2, n, 200) for n in range(20, 40))]
        assert self.take(graph_of(edges), 2, 50) == []

    def test_below_a_heavy_key_the_next_one_down_is_weighed(self) -> None:
        # 2 is a coordinator with 20 members, of whom one has made 30 keys.
        edges = [(0, 2, 200), *((2, n, 200) for n in range(20, 40))]
        edges += [(25, n, 200) for n in range(100, 130)]
        assert self.take(graph_of(edges), 2, 50, most=2) == [(25, 129), (25, 128)]
        assert self.take(graph_of(edges), 2, 21, 60, most=2) == [(25, 129), (25, 128)]
        assert self.take(graph_of(edges), 2, 25, 131) == []

    def test_many_keys_with_few_links_each_are_one_branch(self) -> None:
        edges = [(0, 1, 200), (0, 2, 200), *((1, n, 200) for n in range(10, 14))]
        for sub in range(20, 40):
            edges += [(2, sub, 200), (sub, 100 + sub, 200)]
        taken = self.take(graph_of(edges), 1, 15)
        assert taken
        assert all(issuer in range(20, 40) for issuer, _ in taken)

    def test_a_shortened_way_counts_where_it_was(self) -> None:
        graph = graph_of([(0, 1, 200), (0, 2, 200), (1, 10, 200), (1, 11, 200)])
        for sub in range(20, 24):
            nonce = automatic_nonce((mark_of(key(2)),), key(sub))
            signature = bytes(64)
            short = TrustLink(public_key=key(sub), expires=200, nonce=nonce, signature=signature)
            graph.add(key(0), short)
            for below in range(3):
                graph.add(key(sub), link(sub * 10 + below, 200))
        # One of the four has 3 and branch 1 has 2, but together they have 12.
        assert self.take(graph, 1, 12)[0][0] in range(20, 24)
        assert self.take(graph, 20, 300) == []
        assert self.take(graph, 20) == []

    def test_nobody_gives_where_all_have_as_much(self) -> None:
        assert self.take(graph_of([(0, n, 200) for n in range(1, 9)]), 9) == []
        assert self.take(graph_of([]), 9) == []

    @settings(deadline=None, max_examples=100)
    @given(EDGES, st.one_of(st.just([]), LONG), st.lists(NODES, max_size=3))
    def test_it_always_ends_and_gives_only_what_is_there(
        self, edges: list[Edge], long: list[Edge], newcomer: list[int]
    ) -> None:
        graph = graph_of(edges + long)
        gone = graph.surplus([key(FEED), *map(key, newcomer)], most=4, now=NOW, keep={key(3)})
        assert len(gone) <= 4
        assert all(one in graph.links() for one in gone)
        assert all(issuer != key(FEED) for issuer, _ in gone)
