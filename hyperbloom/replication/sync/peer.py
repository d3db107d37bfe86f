"""A secure connection and its feed: what the peer's messages mean and what it is sent.

Made when the handshake is done, stopped when the connection closes. What this peer has waiting for
the disk and for an answer counts against the share of its key; where that is too much, `is_behind`
tells the connection to take no frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.replication.counters import Counters
from hyperbloom.replication.feed.feed import Feed
from hyperbloom.replication.feed.membership import NotTrusted
from hyperbloom.replication.limits import AUTOMATIC_SHARE, MAX_ASKED_BYTES
from hyperbloom.replication.schedule.plan import FILTER_BYTES, Asked, reply_limit
from hyperbloom.replication.schedule.sync_schedule import ANSWER_SECONDS
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.status import PeerStatus, SyncRound, SyncState
from hyperbloom.replication.sync.peer_intake import PeerIntake
from hyperbloom.replication.sync.peer_output import Connection, PeerOutput
from hyperbloom.replication.sync.reply import (
    Answer,
    asks_for_everything,
    reply_to_request,
    reply_to_sync,
    shared_reply,
)
from hyperbloom.replication.sync.send_jobs import Broadcast, FollowUps, Replies
from hyperbloom.replication.sync.send_scheduler import SendScheduler
from hyperbloom.replication.sync.sync_driver import SyncDriver
from hyperbloom.replication.sync.tree_part import TreePart
from hyperbloom.store import StoreError
from hyperbloom.store.records import Holding
from hyperbloom.trust import Chain
from hyperbloom.wire import FilterOptions, LocalProtocolError, Request, Session, Sync
from hyperbloom.wire.events import (
    DataReceived,
    DataRefused,
    DigestReceived,
    DigestRequested,
    Event,
    FilterOptionsReceived,
    IdsTold,
    LinkReceived,
    RemotePeer,
    RenewalReceived,
    RequestReceived,
    SketchReceived,
    SketchRequested,
    SyncReceived,
    ValuesAskedFor,
    ValuesPulled,
)
from hyperbloom.wire.extensions.broadcast_tree import BROADCAST_TREE
from hyperbloom.wire.extensions.reconcile import RECONCILE
from hyperbloom.wire.extensions.renew_links import RENEW_LINKS, RenewedChain
from hyperbloom.wire.extensions.set_digest import SET_DIGEST

__all__ = ["SPLITS_REPLIES", "Peering", "extensions_of"]

#: Announced in the handshake by a node that splits its replies over as many Data as they need.
SPLITS_REPLIES = "split-replies"

#: A peer with as many questions waiting as it may have is read on from all the same once it has
#: read nothing for so long (seconds): both sides may be held up like this, each waiting until the
#: other reads. What it asks meanwhile is dropped; it asks again with its next plan.
IGNORED_SECONDS = 5.0

T = TypeVar("T")

log = Logger()


def extensions_of(feed: Feed) -> tuple[str, ...]:
    """What this node announces in its Handshakes about a feed."""
    return _names(
        feed.speaks_set_digest,
        feed.speaks_reconcile,
        feed.speaks_broadcast_tree,
        feed.speaks_renew_links,
    )


@cache
def _names(*speaks: bool) -> tuple[str, ...]:
    """The same object for all connections that announce the same."""
    named = zip((SET_DIGEST, RECONCILE, BROADCAST_TREE, RENEW_LINKS), speaks, strict=True)
    return (SPLITS_REPLIES, *(name for name, is_spoken in named if is_spoken))


class Peering:
    """This node and one peer, secure, about one feed; a `FeedPeer` and a `PeerPort`."""

    __slots__ = (
        "_asked",
        "_broadcast",
        "_follow_ups",
        "_left",
        "_replies",
        "_session",
        "_stopped",
        "_work",
        "connection",
        "context",
        "counters",
        "feed",
        "id",
        "intake",
        "is_protected",
        "name",
        "outgoing",
        "output",
        "own_until",
        "pace",
        "path",
        "remote",
        "remote_key",
        "remote_until",
        "scheduler",
        "share",
        "since",
        "splits_replies",
        "sync",
        "tree",
        "was_asked_too_much",
    )

    def __init__(
        self, connection: Connection, feed: Feed, session: Session, remote: RemotePeer
    ) -> None:
        self.connection = connection
        self.name, self.outgoing = connection.name, connection.outgoing
        self.feed = feed
        self.context = feed.context
        self.remote = remote
        self.remote_key = remote.key
        self.id = remote.id
        self.splits_replies = SPLITS_REPLIES in remote.extensions
        self.counters = Counters()
        self.since = self.context.now()
        #: Whether the peer was lost for what it was asked, and will be asked for less.
        self.was_asked_too_much = False
        self._session = session
        #: Whether nobody between both can read or alter the stream (`noise`).
        self.is_protected = session.is_protected
        #: Until when the peer may take part, and this node here; looked at every second.
        self.remote_until, self.own_until = remote.expires, self.own_chain.expires
        self._left = self._stopped = False
        self._work: Deferred[Any] | None = None
        #: By which the peer has its part of whatever is scarce.
        self.path = feed.trust.path_of(remote.chain)
        #: What all connections of this key together may use.
        self.share = self.context.shares.join(self.path)
        #: How fast its small messages are taken.
        self.pace = self.context.pace.join(self.path)
        self._asked = Asked()
        self.sync = SyncDriver(self, self._asked)
        failed = self._job_failed
        self.scheduler = SendScheduler(self.context.clock, failed=failed)
        self.output = PeerOutput(
            connection, session, self.scheduler, self.share, self.counters, self.context, self.sync
        )
        self.tree = TreePart(self)
        self.intake = PeerIntake(
            feed,
            remote.key,
            self.share,
            self.counters,
            connection=connection,
            failed=failed,
            is_shown=session.is_confirmed,
            tree=self.tree,
        )
        self._broadcast = Broadcast(self, feed.values.top_seq)
        self._replies = Replies(self)
        self._follow_ups = FollowUps(self, self._asked)

    def start(self) -> None:
        """Join the feed's peers and begin to ask: the dialler first, the other after its Sync."""
        self.tree.start()
        self.feed.peers.add(self)
        self.feed.trust.learn(self.remote.chain, self.remote_key, self.path)
        self._issue_link()
        self.feed.renewals.look(self)
        for bounds in self.feed.interests:
            self.request(bounds)
        self.sync.begin(0.0 if self.outgoing else self.context.sync.answer_wait)

    def finish(self, done: Callable[[], None]) -> None:
        """The peer sends nothing more: answer what it has asked, and nothing else; then `done`."""
        self._leave()
        self.scheduler.finish((self._replies, *self.sync.answering), done)

    def _leave(self) -> None:
        """Leave the feed's peers; the peer is asked nothing any more."""
        if self._left:
            return
        self._left = True
        self.feed.peers.remove(self)
        self.feed.renewals.gone(self)
        self.tree.stop()
        self.sync.stop_asking()

    def stop(self) -> None:
        """Leave the feed's peers; nothing is sent any more."""
        if self._stopped:
            return
        self._stopped = True
        self.output.stop()
        self._leave()
        if self._work is not None:
            # What waits for its turn holds a filter, and who comes again and again leaves many.
            self._work.cancel()
        self._replies.drop()
        self.share.forget(self.connection.look_again)
        self.context.shares.leave(self.share)
        self.pace.forget(self.connection.look_again)
        self.context.pace.leave(self.pace)
        self.share.wake()
        self.sync.stop()

    @property
    def own_chain(self) -> Chain:
        """The chain this node has proved itself with here."""
        credentials = self._session.credentials
        return Chain(self.feed.key) if credentials is None else credentials.chain

    @property
    def is_behind(self) -> bool:
        """Whether this peer, or its branch, has as much waiting here as it may."""
        if self.context.shares.rests(self.share) or not self._has_room:
            return True
        if self.pace.rests:
            return True
        # A peer that does not read our answers may be waiting until we read its own.
        ignored = self.scheduler.stalled_since(self.context.clock.seconds()) >= IGNORED_SECONDS
        return self._has_enough_questions and not ignored

    @property
    def _has_room(self) -> bool:
        """Whether there is memory for another frame of it, be it values or a question."""
        share, rooms = self.share, self.context.shares.rooms
        return (
            rooms.unwritten.of(share) < self.context.limits.unwritten_bytes
            and rooms.unwritten.allows(share)
            and (len(self._replies) > 0 or rooms.asked.allows(share))
        )

    def wait_for_room(self) -> None:
        """It is behind: have the connection look again when that may have changed."""
        shares = self.context.shares
        self.share.wait(self.connection.look_again)
        if shares.rests(self.share):
            shares.wake_after_rest(self.share)
        else:
            shares.rooms.wait(self.share)
        if self.pace.rests:
            self.pace.wait(self.connection.look_again)

    def took(self, event: Event, seconds: float) -> None:
        """An event has been taken, which cost so much, its frame included."""
        if isinstance(event, IdsTold | ValuesPulled | DigestRequested):
            self.pace.spend(seconds)

    @property
    def _has_enough_questions(self) -> bool:
        waiting = len(self._replies)
        return waiting >= self.context.limits.pending_requests or (
            waiting > 0 and not self._may_ask_more
        )

    @property
    def _may_ask_more(self) -> bool:
        asked = self.context.shares.rooms.asked
        return asked.of(self.share) < MAX_ASKED_BYTES and asked.allows(self.share)

    @property
    def owes_answers(self) -> bool:
        """Whether so many of the peer's questions wait here that our own had better wait, too."""
        return len(self._replies) > self.context.limits.pending_requests // 2

    @property
    def is_receiving(self) -> bool:
        """Whether values of the peer wait for the disk or for being asked for, or are on their way.

        At a low rate a frame with many of them takes longer than a look at what has moved.
        """
        return (
            self.intake.unwritten > 0
            or len(self._follow_ups) > 0
            or self._session.buffered_bytes > 0
        )

    @property
    def is_sending(self) -> bool:
        """Whether the peer has questions that wait here, or was not sent all that is new."""
        return len(self._replies) > 0 or self._broadcast.cursor < self.feed.values.top_seq

    @property
    def awaits_reply(self) -> bool:
        """Whether a peer that cannot split its replies has been asked and not answered yet."""
        return self._asked.is_waiting(now=self.context.clock.seconds())

    # Whether it is in sync

    @property
    def sync_state(self) -> SyncState | None:
        """What is known of whether the peer is in sync, None: nothing yet."""
        return self.sync.state

    @property
    def told(self) -> tuple[Holding, Holding] | None:
        """What the peer told last that it holds, and what there was here."""
        return self.sync.digests.told

    @property
    def last_round(self) -> SyncRound | None:
        """How it was last asked for what differs, None: not yet."""
        return self.sync.last_round

    @property
    def can_compare(self) -> bool:
        """Whether it can be compared with by digest."""
        return self.sync.digests.is_possible

    def hurry(self) -> None:
        """Somebody waits until this peer is in sync: do not wait for the interval."""
        self.sync.hurry()

    def tell(self) -> None:
        """There is more in the feed's stream: tell the peer, at once or when it is its turn."""
        self._broadcast.tell()

    def close(self, why: CloseReason) -> None:
        """End the connection."""
        self.connection.close(why)

    # What the peer says

    def take(self, event: Event) -> None:
        """One event of the secure session."""
        match event:
            case DataReceived():
                self._take_data(event.values)
            case SyncReceived():
                self._take_sync(event.sync)
            case RequestReceived():
                self.answer(self._reply_to(event.request))
            case DigestRequested():
                self.sync.digests.take_request(event.request)
            case DigestReceived():
                self.sync.digests.take_digest(event.digest)
            case SketchRequested() | SketchReceived() | ValuesAskedFor():
                self._take_of_sketch(event)
            case IdsTold():
                is_offered = self.sync.sketches.peer_is_asking
                self.tree.take_told(event.told, is_offered=is_offered)
            case ValuesPulled():
                self.tree.take_pull(event.pull)
            case LinkReceived():
                if self.feed.trust.membership.denied_in(event.chain) is None:
                    self.feed.trust.learn(event.chain, self.remote_key, self.path)
                    self._session.use_chain(event.chain)
            case RenewalReceived():
                self.feed.renewals.take(self, event.renewal.links)
            case DataRefused(reason="expired"):
                # No fault of the peer's: it was on its way while the time ran out.
                self.connection.close(CloseReason("expired", "a link of its chain has expired"))
            case DataRefused():
                self.connection.strike(f"its values were refused ({event.reason})")
            case FilterOptionsReceived():
                self.sync.filters_recommended(event.size // 8)
            case _:
                log.debug("{peer}: {event}", peer=self.name, event=type(event).__name__)

    def _take_of_sketch(self, event: SketchRequested | SketchReceived | ValuesAskedFor) -> None:
        if not self.feed.speaks_reconcile:
            return
        match event:
            case SketchRequested():
                self.sync.sketches.take_request(event.request)
            case SketchReceived():
                self.sync.sketches.take_sketch(event.sketch)
            case ValuesAskedFor():
                self.sync.sketches.take_wanted(event.wanted)

    def _take_data(self, values: Sequence[bytes]) -> None:
        self._broadcast.peer_has(values)
        self.tree.received(values)
        if self._follow_ups.received(values):
            self.feed.peers.reply_scales.lengthen(self.path)
        self.intake.take(values)

    def _take_sync(self, sync: Sync) -> None:
        self.counters.last_sync_received = self.context.now()
        self.counters.syncs_received += 1
        limits = self.context.limits
        if sync.n > limits.hash_functions:
            options = FilterOptions(size=FILTER_BYTES * 8, n=limits.hash_functions)
            if self.splits_replies:  # npm 2.x drops the connection on a FilterOptions
                self.output.send_filter_options(options)
            self.connection.strike(f"its filter has {sync.n} hash functions")
            return
        self.sync.peer_asked(sync)
        self.answer(self._reply_to(sync))

    def _reply_to(self, question: Sync | Request) -> Answer:
        values = self.feed.values
        slices, signer = values.slices, self.own_chain.holder
        if asks_for_everything(question):
            return shared_reply(question, values.top_seq, signer, slices, values.shared_slices)
        read, was_here = slices.at_most, slices.was_here()
        if isinstance(question, Request):
            return reply_to_request(question, read, was_here)
        return reply_to_sync(question, read, was_here)

    def answer(self, reply: Answer) -> None:
        """Put an answer behind the others; a peer that reads none gets no more of them."""
        if not self._has_enough_questions:
            self._replies.add(reply)

    # What the peer is told

    def work(self, call: Callable[[], T]) -> Deferred[T]:
        """Do in a thread what is to be done because of this peer, when it is its turn."""
        work = self.context.work_for(self.share, call)
        self._work = work

        def ended(outcome: Any) -> Any:
            if self._work is work:
                self._work = None
            return outcome

        return work.addBoth(ended)

    def ask(self, question: Sync | Request, wanted: int | None = None) -> None:
        """Send a question; one with a limit is remembered, so that the rest can be asked for."""
        if self._left:
            return
        if question.limit is not None and not self.splits_replies:
            deadline = self.context.clock.seconds() + ANSWER_SECONDS
            self._asked.ask(question, deadline=deadline, wanted=wanted)
        if isinstance(question, Request):
            self.output.send_request(question)
        else:
            self.output.send_sync(question)

    def request(self, bounds: KeyRange, limit: int | None = None) -> None:
        """Ask for the values of a range, `limit` of them in all."""
        most = [number for number in (limit, self.reply_limit()) if number is not None]
        question = Request(start=bounds[0], end=bounds[1], limit=min(most) if most else None)
        self.ask(question, wanted=limit)

    def reply_limit(self) -> int | None:
        """The limit a question to this peer carries; None where it splits its replies."""
        if self.splits_replies:
            return None
        scale = self.feed.peers.reply_scales.of(self.path)
        return reply_limit(self.feed.values.mean_bytes, scale)

    def reply_was_too_big(self) -> bool:
        """Whether it was, when the connection broke: this peer is asked for less from now on.

        It cannot split its replies, and the values asked for were longer than the mean.
        """
        if not self.awaits_reply:
            return False
        self.was_asked_too_much = self.feed.peers.reply_scales.shorten(self.path)
        return True

    def answered(self, tested: int) -> float:
        """Count the work of an answer; seconds until the next step may be taken."""
        self.counters.values_tested += tested
        return self.share.budget.spend(tested, now=self.context.clock.seconds())

    def answer_done(self, reply: Answer) -> None:
        """A question is answered: there may be room for the next."""
        if reply.about is not None and not reply.was_cut:
            self.sync.peer_was_answered(reply.about)
        self.share.wake()

    def status(self, bytes_in: int, bytes_out: int, strikes: int) -> PeerStatus:
        """A picture of this connection."""
        remote, counters, state = self.remote, self.counters, self.sync.state
        return PeerStatus(
            feed=self.feed.key,
            address=self.name,
            outgoing=self.outgoing,
            protected=self.is_protected,
            key=remote.key,
            id=remote.id,
            chain_links=len(remote.chain),
            expires=remote.expires if math.isfinite(remote.expires) else None,
            extensions=tuple(remote.extensions),
            since=self.since,
            values_in=counters.values_in,
            values_new=counters.values_new,
            values_out=counters.values_out,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            last_sync_sent=counters.last_sync_sent,
            last_sync_received=counters.last_sync_received,
            last_data=counters.last_data,
            last_new=counters.last_new,
            strikes=strikes,
            in_sync=None if state is None else state.in_sync,
            in_sync_at=None if state is None else state.at,
            in_sync_by=None if state is None else state.source,
            expected=self._expected(),
            last_round=self.last_round,
        )

    def _expected(self) -> int | None:
        """How many values there are here with all that the peer had when it was compared last."""
        if self.told is None or self.feed.settings.mode != "full":
            return None
        there, here = self.told
        return here.here.count + max(0, there.here.count - here.settled.count)

    def _issue_link(self) -> None:
        expires = self._session.link_due() if self.feed.settings.issue_links else None
        chain = self.feed.trust.chain
        # A Link lasts as long as the peer's own chain, and none may outlive ours.
        if expires is None or chain is None or chain.expires < expires:
            return
        try:
            issued = self.feed.trust.issue_link(
                self.remote_key, expires=expires, share=AUTOMATIC_SHARE, shortens=self.remote.chain
            )
        except (NotTrusted, ValueError) as error:
            self.connection.tell("no-link", f"no link is issued to it: {error}")
            return
        issued.addCallback(self.output.send_link).addErrback(self._job_failed)

    # Renewed chains (`feed.renewals.RenewalPeer`)

    @property
    def takes_renewals(self) -> bool:
        """Whether the peer can be sent a renewed chain."""
        return RENEW_LINKS in self.remote.extensions

    def send_renewal(self, chain: Chain) -> None:
        """Send a chain to the peer's key."""
        self.output.send_extension(RenewedChain(links=chain.to_wire()))

    def has_new_chain(self, chain: Chain) -> None:
        """The peer has brought this node the chain that it proves itself with from now on."""
        if not self._stopped:
            self._session.use_chain(chain)

    def say(self, kind: str, what: str) -> None:
        """Something of the peer's, for the log."""
        self.connection.tell(kind, what)

    def broke_a_rule(self, what: str) -> None:
        """The peer broke a rule, in words."""
        self.connection.strike(what)

    def _job_failed(self, failure: Failure) -> None:
        """Something went wrong here: end the connection, and say so in the log."""
        if failure.check(StoreError, LocalProtocolError):
            log.error("{peer}: {why}", peer=self.name, why=failure.value)
        else:
            log.failure("{peer}: unexpected", failure=failure, peer=self.name)
        self.connection.close(
            CloseReason("failed", "this node could not go on with the connection")
        )
