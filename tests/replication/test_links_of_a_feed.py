"""The links of a feed without a network: what is learnt, issued, bounded and forgotten."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence

import pytest

from hyperbloom.keys import Identity
from hyperbloom.replication.deny_list import DenyList
from hyperbloom.replication.feed.membership import (
    PEERS_SHARE,
    KeyDenied,
    Membership,
    NotTrusted,
)
from hyperbloom.replication.limits import (
    AUTOMATIC_LINKS,
    AUTOMATIC_SHARE,
    LOOKS_FOR_ROOM_SECONDS,
)
from hyperbloom.store.limits import MAX_LINKS_PER_ISSUER
from hyperbloom.store.records import LinkRecord
from hyperbloom.trust import (
    Chain,
    TrustLink,
    issue_link,
    mark_of,
    owner_chain,
    shortened_by,
)
from hyperbloom.wire import Dialect
from hyperbloom.wire.dialect import DIALECT_2, DIALECT_DRAFT

NOW = 1_000.0
PEOPLE = [Identity(bytes([number]) * 32) for number in range(1, 9)]
OWNER, ME, FRIEND, STRANGER = PEOPLE[:4]
FEED = OWNER.public_key
NONCE = b"n" * 32


def link(issuer: Identity, trustee: bytes, expires: float = NOW + 100) -> TrustLink:
    return issue_link(issuer, trustee, expires=expires, nonce=NONCE)


def chain(*people: Identity, expires: float = NOW + 100) -> Chain:
    """From the owner along these."""
    hops = itertools.pairwise([OWNER, *people])
    return Chain(FEED, tuple(link(one, other.public_key, expires) for one, other in hops))


def record(issuer: Identity, made: TrustLink, *, by: Identity = OWNER) -> LinkRecord:
    return LinkRecord(
        issuer=issuer.public_key,
        trustee=made.public_key,
        expires=made.expires,
        first_seen=int(NOW) * 1_000_000,
        introduced_by=by.public_key,
        raw=made.to_bytes(),
    )


def membership(
    identity: Identity = ME,
    *,
    known: Sequence[LinkRecord] = (),
    dialect: Dialect = DIALECT_2,
    denied: Iterable[bytes] = (),
) -> Membership:
    return Membership(FEED, identity, dialect, known, leeway=0.0, denied=DenyList(denied))


def invited(**more) -> Membership:
    """Of a node that the owner has invited until NOW + 100."""
    return membership(known=[record(OWNER, link(OWNER, ME.public_key))], **more)


def issue(one: Membership, trustee: bytes, *, expires: float = NOW + 50, share: float = 1.0):
    return one.issue(trustee, expires=expires, nonce=NONCE, now=NOW, share=share)


def number_key(number: int) -> bytes:
    return number.to_bytes(32, "big")


class TestIssuing:
    def test_a_link_is_recorded_as_it_is_stored(self) -> None:
        one = invited()
        made, put = issue(one, FRIEND.public_key)
        assert made.is_signed_by(ME.public_key)
        assert put.feed_key == FEED
        assert put.links == (record(ME, made, by=ME),)
        assert one.shortest_chain(FRIEND.public_key, now=NOW) == Chain(
            FEED, (link(OWNER, ME.public_key), made)
        )

    def test_who_comes_again_gets_the_link_it_had(self) -> None:
        one = invited()
        made, put = issue(one, FRIEND.public_key)
        again, put_again = one.issue(
            FRIEND.public_key, expires=NOW + 50, nonce=b"m" * 32, now=NOW, share=1.0
        )
        assert (again, put_again) == (made, put)
        for trustee, expires in ((FRIEND.public_key, NOW + 51), (STRANGER.public_key, NOW + 50)):
            other, _ = issue(one, trustee, expires=expires)
            assert (other.public_key, other.expires) == (trustee, expires)

    def test_another_ones_link_is_not_given_as_ours(self) -> None:
        one = membership(
            known=[
                record(OWNER, link(OWNER, ME.public_key)),
                record(OWNER, link(OWNER, FRIEND.public_key, NOW + 50)),
            ]
        )
        made, _ = issue(one, FRIEND.public_key)
        assert made.is_signed_by(ME.public_key)

    def test_it_ends_with_this_nodes_own_chain(self) -> None:
        assert issue(invited(), FRIEND.public_key, expires=NOW + 500)[0].expires == NOW + 100
        assert issue(invited(), FRIEND.public_key, expires=math.inf)[0].expires == NOW + 100

    def test_an_end_that_has_passed_is_refused(self) -> None:
        with pytest.raises(ValueError, match="already have expired"):
            issue(invited(), FRIEND.public_key, expires=NOW)
        assert issue(invited(), FRIEND.public_key, expires=math.nextafter(NOW, math.inf))

    def test_the_fifth_from_the_feed_invites_nobody(self) -> None:
        for length, may_invite in ((4, True), (5, False)):
            way = PEOPLE[1 : 1 + length]
            one = membership(way[-1])
            one.add(chain(*way), now=NOW)
            if may_invite:
                assert issue(one, number_key(9))
            else:
                with pytest.raises(ValueError, match="5 links away"):
                    issue(one, number_key(9))

    def test_nobody_is_invited_who_writes_already(self) -> None:
        for trustee in (FEED, ME.public_key):
            with pytest.raises(ValueError, match="can write already"):
                issue(invited(), trustee)

    def test_ends_are_as_the_dialect_has_them(self) -> None:
        with pytest.raises(ValueError, match="have to expire"):
            issue(membership(OWNER), FRIEND.public_key, expires=math.inf)
        draft = membership(OWNER, dialect=DIALECT_DRAFT)
        with pytest.raises(ValueError, match="never expire"):
            issue(draft, FRIEND.public_key)
        made, _ = issue(draft, FRIEND.public_key, expires=math.inf)
        assert made.expires == math.inf
        assert not draft.unreadable


class TestRoom:
    """Bounds of the links of a feed and of one issuer; `few` makes them small."""

    @pytest.fixture
    def few(self, monkeypatch) -> Callable[[int, int], None]:
        def set_bounds(in_all: int, of_one: int) -> None:
            module = "hyperbloom.replication.feed.membership"
            monkeypatch.setattr(f"{module}.MAX_LINKS_PER_FEED", in_all)
            monkeypatch.setattr(f"{module}.MAX_LINKS_PER_ISSUER", of_one)

        return set_bounds

    def made_up(self, count: int, expires: float = NOW + 100) -> list[Chain]:
        return [Chain(FEED, (link(OWNER, number_key(n), expires),)) for n in range(count)]

    @pytest.mark.parametrize("bounds", [(8, 99), (99, 8)], ids=["of the feed", "of one issuer"])
    def test_by_hand_all_of_it_is_filled(self, few, bounds) -> None:
        few(*bounds)
        one = membership()
        *fitting, more = self.made_up(9)
        for each in fitting:
            assert one.add(each, now=NOW) is not None
        assert one.add(fitting[0], now=NOW) is None, "it is there already"
        with pytest.raises(ValueError, match="as many links as it may"):
            one.add(more, now=NOW)
        assert one.shortest_chain(more.holder, now=NOW) is None

    @pytest.mark.parametrize("bounds", [(8, 99), (99, 8)], ids=["of the feed", "of one issuer"])
    def test_peers_fill_a_part(self, few, bounds) -> None:
        few(*bounds)
        one = membership()
        taken = [one.learn(each, introduced_by=FEED, now=NOW) for each in self.made_up(9)]
        assert [put is not None for put in taken] == [True] * 6 + [False] * 3
        assert 8 * PEERS_SHARE == 6

    def test_a_chain_of_many_links_needs_room_for_each(self, few) -> None:
        few(8, 99)
        one = membership()
        for each in self.made_up(5):
            one.learn(each, introduced_by=FEED, now=NOW)
        two_links = chain(FRIEND, STRANGER)
        assert one.learn(two_links, introduced_by=FEED, now=NOW) is None
        assert one.learn(chain(FRIEND), introduced_by=FEED, now=NOW) is not None

    def test_a_part_may_be_issued(self, few) -> None:
        few(99, 8)
        one = membership(OWNER)
        for number in range(4):
            issue(one, number_key(number), share=0.5)
        with pytest.raises(ValueError, match="as many links as it may"):
            issue(one, number_key(5), share=0.5)
        assert issue(one, number_key(5), share=1.0)

    def test_what_has_expired_makes_room(self, few) -> None:
        few(99, 4)
        one = membership()
        for each in self.made_up(4, expires=NOW + 1):
            one.add(each, now=NOW)
        with pytest.raises(ValueError, match="as many links as it may"):
            one.add(chain(ME), now=NOW + 1)
        assert one.add(chain(ME), now=NOW + 2) is not None

    def test_stored_links_count(self, few) -> None:
        few(99, 2)
        known = [record(OWNER, link(OWNER, number_key(n))) for n in range(2)]
        with pytest.raises(ValueError, match="as many links as it may"):
            membership(known=known).add(chain(ME), now=NOW)
        assert MAX_LINKS_PER_ISSUER > 2


def shorten(one: Membership, way: Chain, *, expires: float = NOW + 50):
    return one.issue(
        way.holder, expires=expires, nonce=NONCE, now=NOW, share=AUTOMATIC_SHARE, shortens=way
    )


class TestShortening:
    """Links that a node issues by itself, for peers whose chains are longer."""

    def test_it_names_what_it_leaves_out(self) -> None:
        made, put = shorten(membership(OWNER), chain(ME, FRIEND, STRANGER))
        assert shortened_by(made) == (mark_of(ME.public_key), mark_of(FRIEND.public_key))
        assert put.links == (record(OWNER, made),)

    def test_who_comes_again_has_the_same(self) -> None:
        one, way = membership(OWNER), chain(ME, FRIEND)
        assert shorten(one, way) == shorten(one, way)
        other = shorten(one, chain(STRANGER, FRIEND))
        assert other != shorten(one, way), "by another way it is another link"

    def test_a_branch_has_so_many(self) -> None:
        one = membership(OWNER)
        for number in range(AUTOMATIC_LINKS):
            way = chain(ME).extended(link(ME, number_key(number)))
            shorten(one, way)
        more = chain(ME).extended(link(ME, number_key(AUTOMATIC_LINKS)))
        with pytest.raises(ValueError, match="its branch has 32 shorter chains"):
            shorten(one, more)
        deeper = chain(ME, FRIEND).extended(link(FRIEND, number_key(AUTOMATIC_LINKS + 1)))
        with pytest.raises(ValueError, match="its branch"):
            shorten(one, deeper)
        assert shorten(one, chain(STRANGER).extended(link(STRANGER, number_key(99))))

    def test_below_this_node_the_branches_are_whom_it_invited(self) -> None:
        one = invited()
        for branch in (FRIEND, STRANGER):
            for number in range(AUTOMATIC_LINKS):
                way = chain(ME, branch).extended(
                    link(branch, branch.public_key[:16] + bytes([number] * 16))
                )
                shorten(one, way)
            with pytest.raises(ValueError, match="its branch"):
                shorten(one, chain(ME, branch).extended(link(branch, number_key(1))))

    def test_it_falls_with_each_key_that_it_leaves_out(self) -> None:
        made, put = shorten(membership(OWNER), chain(ME, FRIEND, STRANGER))
        short = Chain(FEED, (made,))
        for denied in (ME, FRIEND, STRANGER, OWNER):
            one = membership(OWNER, known=put.links, denied={denied.public_key})
            assert one.denied_in(short) == denied.public_key
            assert one.shortest_chain(STRANGER.public_key, now=NOW) is None
            assert one.learn(short, introduced_by=FEED, now=NOW) is None
        one = membership(OWNER, known=put.links, denied={number_key(1)})
        assert one.denied_in(short) is None

    def test_one_of_a_release_that_named_nothing_falls_with_all_other_ways(self) -> None:
        """Links of our own that name nothing: a person's word, or a way shortened long ago."""
        made = link(OWNER, STRANGER.public_key)
        known = [record(OWNER, made), *(record(*hop) for hop in hops(chain(ME, STRANGER)))]
        short, denied = Chain(FEED, (made,)), {ME.public_key}
        assert membership(OWNER, known=known, denied=denied).denied_in(short) == ME.public_key
        other_way = [record(*hop) for hop in hops(chain(FRIEND, STRANGER))]
        assert membership(OWNER, known=[*known, *other_way], denied=denied).denied_in(short) is None
        assert membership(OWNER, known=known[:1], denied=denied).denied_in(short) is None
        by_hand = membership(OWNER, known=known)
        issue(by_hand, STRANGER.public_key)
        by_hand._denied.add(ME.public_key)
        assert by_hand.denied_in(short) is None


def hops(way: Chain) -> list[tuple[Identity, TrustLink]]:
    people = {person.public_key: person for person in PEOPLE}
    return [(people[issuer], one) for issuer, one in way.issuers()]


class TestReplacing:
    def test_a_link_by_hand_takes_the_place_of_those_that_end_no_later(self) -> None:
        one = membership(OWNER)
        shorten(one, chain(ME, FRIEND))
        first, _ = issue(one, FRIEND.public_key, expires=NOW + 50)
        longer, put = issue(one, FRIEND.public_key, expires=NOW + 90)
        assert {raw for _, raw in put.gone} >= {first.to_bytes()}
        shorter, put = issue(one, FRIEND.public_key, expires=NOW + 60)
        assert put.gone == ()
        assert set(one._graph.links_of(FEED)) == {longer, shorter}

    def test_a_full_issuer_renews(self, monkeypatch) -> None:
        monkeypatch.setattr("hyperbloom.replication.feed.membership.MAX_LINKS_PER_ISSUER", 8)
        one = membership(OWNER)
        for number in range(8):
            issue(one, number_key(number))
        with pytest.raises(ValueError, match="as many links as it may"):
            issue(one, number_key(9))
        made, put = issue(one, number_key(3), expires=NOW + 90, share=PEERS_SHARE + 0.25)
        assert len(put.gone) == 1
        assert made in one._graph.links_of(FEED)


class TestWhoTakesTheRoom:
    """Where there is no room, the branch with most links gives some of its own."""

    @pytest.fixture
    def small(self, monkeypatch) -> None:
        monkeypatch.setattr("hyperbloom.replication.feed.membership.MAX_LINKS_PER_FEED", 40)

    def test_a_member_who_makes_keys_pushes_out_his_own(self, small) -> None:
        one, now = membership(OWNER), NOW
        his = [chain(ME).extended(link(ME, number_key(number))) for number in range(60)]
        taken = [one.learn(way, introduced_by=FEED, now=now) for way in his]
        assert sum(put is not None for put in taken) == 29
        for number in range(100, 110):
            way = chain(FRIEND).extended(link(FRIEND, number_key(number)))
            assert one.learn(way, introduced_by=FEED, now=now) is not None
        kept = list(one._graph.links())
        assert len(kept) <= 30
        assert sum(issuer == FRIEND.public_key for issuer, _ in kept) == 10
        for way in his[30:]:
            now += LOOKS_FOR_ROOM_SECONDS
            assert one.learn(way, introduced_by=FEED, now=now) is None or len(one._graph) <= 30
        assert sum(issuer == FRIEND.public_key for issuer, _ in one._graph.links()) == 10

    def test_an_invitation_that_finds_no_room_shuts_nobody_out(self, small, monkeypatch) -> None:
        monkeypatch.setattr("hyperbloom.replication.feed.membership.MAX_LINKS_PER_ISSUER", 2)
        one = membership(OWNER)
        issue(one, number_key(1))
        issue(one, number_key(2))
        with pytest.raises(ValueError, match="as many links as it may"):
            issue(one, number_key(3))
        monkeypatch.undo()
        assert one.learn(chain(FRIEND, STRANGER), introduced_by=FEED, now=NOW) is not None

    def test_what_went_is_removed_from_the_store_too(self, small) -> None:
        one = membership(OWNER)
        for number in range(29):
            one.learn(chain(ME).extended(link(ME, number_key(number))), introduced_by=FEED, now=NOW)
        before = {(issuer, each.to_bytes()) for issuer, each in one._graph.links()}
        put = one.learn(chain(FRIEND, STRANGER), introduced_by=FEED, now=NOW)
        assert put is not None
        after = {(issuer, each.to_bytes()) for issuer, each in one._graph.links()}
        assert set(put.gone) == before - after
        assert put.gone
        assert one.take_dropped() is None

    def test_an_invitation_by_hand_finds_room(self, small) -> None:
        one = membership(OWNER)
        for number in range(29):
            one.learn(chain(ME).extended(link(ME, number_key(number))), introduced_by=FEED, now=NOW)
        for number in range(100, 110):
            issue(one, number_key(number))
        issue(one, number_key(110))
        assert all(
            any(each.public_key == number_key(number) for each in one._graph.links_of(FEED))
            for number in range(100, 111)
        )

    def test_no_stored_link_outlives_its_chain(self) -> None:
        one = membership(OWNER)
        way = chain(ME, expires=NOW + 10).extended(link(ME, FRIEND.public_key, 1e300))
        way = way.extended(link(FRIEND, STRANGER.public_key, NOW + 50))
        put = one.learn(way, introduced_by=FEED, now=NOW)
        assert put is not None
        assert [each.expires for each in put.links] == [NOW + 10] * 3
        one.prune(before=NOW + 11)
        assert len(one._graph) == 0
        put = one.take_dropped()
        assert put is not None
        assert len(put.gone) == 3

    def test_a_denial_drops_what_is_below_but_not_the_link_to_it(self) -> None:
        one = membership(OWNER)
        issue(one, ME.public_key)
        one.learn(chain(ME, FRIEND, STRANGER), introduced_by=FEED, now=NOW)
        one._denied.add(ME.public_key)
        one.prune(before=NOW)
        assert {each.public_key for _, each in one._graph.links()} == {ME.public_key}
        one._denied.discard(ME.public_key)
        assert one.shortest_chain(ME.public_key, now=NOW) is not None

    def test_this_nodes_own_chain_outlives_a_denial(self) -> None:
        one = membership(STRANGER)
        one.add(chain(ME, FRIEND, STRANGER), now=NOW)
        one._denied.add(ME.public_key)
        one.look_anew()
        one.prune(before=NOW)
        assert one.chain(now=NOW) is None
        one._denied.discard(ME.public_key)
        one.look_anew()
        assert one.chain(now=NOW) == chain(ME, FRIEND, STRANGER)


class TestLearning:
    def test_what_is_known_is_not_stored_again(self) -> None:
        one = membership()
        assert not one.has_links
        put = one.learn(chain(ME, FRIEND), introduced_by=FEED, now=NOW)
        assert put is not None
        assert len(put.links) == 2
        assert one.has_links
        assert one.learn(chain(ME, FRIEND), introduced_by=FEED, now=NOW) is None
        longer = one.learn(chain(ME, FRIEND, STRANGER), introduced_by=FEED, now=NOW)
        assert longer is not None
        assert [each.trustee for each in longer.links] == [STRANGER.public_key]

    def test_an_owners_link_to_itself_is_no_member(self) -> None:
        one = membership(dialect=DIALECT_DRAFT)
        own = owner_chain(OWNER, format=DIALECT_DRAFT.link_format)
        assert one.learn(own, introduced_by=FEED, now=NOW) is None
        assert not one.has_links

    def test_links_of_another_dialect_are_counted_and_left(self) -> None:
        one = invited(dialect=DIALECT_DRAFT)
        assert one.unreadable == 1
        assert one.members(now=NOW) == []
        assert invited().unreadable == 0

    def test_forgotten_links_may_be_learnt_again(self) -> None:
        one = invited()
        one.prune(before=NOW + 100)
        assert [member.key for member in one.members(now=NOW)] == [ME.public_key]
        one.prune(before=NOW + 101)
        assert one.members(now=NOW) == []
        assert not one.has_links
        assert one.learn(chain(ME), introduced_by=FEED, now=NOW) is not None


class TestOwnChain:
    def test_it_is_found_when_it_comes_and_gone_when_it_ends(self) -> None:
        one = membership()
        assert one.chain(now=NOW) is None
        assert one.chain(now=NOW + 1) is None
        one.learn(chain(ME), introduced_by=FEED, now=NOW)
        assert one.chain(now=NOW) == chain(ME)
        assert one.chain(now=NOW + 100) == chain(ME)
        assert one.chain(now=NOW + 101) is None
        assert one.chain(now=NOW) == chain(ME)

    def test_a_longer_lasting_one_is_taken_at_once(self) -> None:
        one = invited()
        assert one.chain(now=NOW) == chain(ME)
        one.add(chain(ME, expires=NOW + 200), now=NOW)
        assert one.chain(now=NOW) == chain(ME, expires=NOW + 200)

    def test_another_pair_has_another_chain(self) -> None:
        one = invited()
        assert one.chain(now=NOW) == chain(ME)
        one.prove_by(OWNER)
        assert one.chain(now=NOW) == Chain(FEED)

    def test_why_there_is_none(self) -> None:
        with pytest.raises(NotTrusted, match="no chain of links leads"):
            membership().require_chain(now=NOW)
        with pytest.raises(NotTrusted, match="every link to this node's key has expired"):
            invited().require_chain(now=NOW + 101)
        with pytest.raises(KeyDenied, match="a key that this node denies"):
            invited(denied={FEED}).require_chain(now=NOW)
        assert invited().require_chain(now=NOW) == chain(ME)

    def test_a_chain_through_a_denied_key_does_not_hold(self) -> None:
        raw = chain(FRIEND, STRANGER).to_wire()
        assert membership().verify(raw, now=NOW) == chain(FRIEND, STRANGER)
        with pytest.raises(KeyDenied, match=FRIEND.public_key.hex()):
            membership(denied={FRIEND.public_key}).verify(raw, now=NOW)
        with pytest.raises(KeyDenied, match="allow it first"):
            issue(invited(denied={FRIEND.public_key}), FRIEND.public_key)
