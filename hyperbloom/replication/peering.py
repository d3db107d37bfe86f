"""A secure connection and its feed: what the peer's messages mean and what it is sent.

Made when the handshake is done, stopped when the connection closes. It counts what this peer has
waiting for the disk and for an answer; `is_behind` tells the connection to take no more frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.bloom import estimate_count
from hyperbloom.replication.agreement import Agreement, SyncEvidence
from hyperbloom.replication.comparing import Comparing
from hyperbloom.replication.figures import Figures
from hyperbloom.replication.jobs import AskOn, Broadcast, Replies, Sweep
from hyperbloom.replication.limits import (
    DOUBT_FACTOR,
    DOUBT_SECONDS,
    FULL_PLAN_SECONDS,
    SYNC_SHARE,
)
from hyperbloom.replication.membership import PEERS_SHARE, NotTrusted
from hyperbloom.replication.outflow import Outflow
from hyperbloom.replication.plan import FILTER_BYTES, Asked, reply_limit
from hyperbloom.replication.refusal import Refused
from hyperbloom.replication.reply import Reply, WorkBudget, reply_to_request, reply_to_sync
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.status import PeerStatus
from hyperbloom.store import Appended, StoreError
from hyperbloom.trust import Chain, TrustLink
from hyperbloom.wire import (
    SET_DIGEST,
    Data,
    DataReceived,
    DataRefused,
    Digest,
    DigestReceived,
    DigestRequest,
    DigestRequested,
    Event,
    FilterOptions,
    FilterOptionsReceived,
    LinkReceived,
    LocalProtocolError,
    RemotePeer,
    Request,
    RequestReceived,
    Session,
    Sync,
    SyncReceived,
    pack_values,
)

if TYPE_CHECKING:
    from hyperbloom.replication.feed import Feed

__all__ = ["SPLITS_REPLIES", "Connection", "Peering", "extensions_of"]

#: Announced in the handshake by a node that splits its replies over as many Data as they need.
SPLITS_REPLIES = "split-replies"

#: How long a peer that cannot split its replies has to answer one question, in seconds.
ANSWER_SECONDS = 5.0

#: A call that waits until the peer is in sync has it asked again so soon after the last time.
HURRY_SECONDS = 0.5

#: A peer with as many questions waiting as it may have is read on from all the same once it has
#: read nothing for so long (seconds): both sides may be held up like this, each waiting until the
#: other reads. What it asks meanwhile is dropped; it asks again with its next plan.
IGNORED_SECONDS = 5.0

#: A peer that recommends smaller filters than this would have us send too many of them.
LEAST_FILTER_BYTES = 8_192

log = Logger()


def extensions_of(feed: Feed) -> tuple[str, ...]:
    """What this node announces in its Handshakes about a feed."""
    return (SPLITS_REPLIES, SET_DIGEST) if feed.speaks_set_digest else (SPLITS_REPLIES,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What a peering needs of its connection.

    write: bytes to the transport. release: the peer is no longer behind, frames may be taken.
    strike: the peer broke a rule, in words. close: end the connection.
    """

    name: str
    outgoing: bool
    write: Callable[[bytes], None]
    release: Callable[[], None]
    strike: Callable[[str], None]
    close: Callable[[Refused], None]


class Peering:
    """This node and one peer, secure, about one feed."""

    def __init__(
        self, connection: Connection, feed: Feed, session: Session, remote: RemotePeer
    ) -> None:
        self.connection = connection
        self.feed = feed
        self.context = feed.context
        self.remote = remote
        self.remote_key = remote.key
        self.id = remote.id
        self.splits_replies = SPLITS_REPLIES in remote.extensions
        self.figures = Figures()
        self.since = self.context.now()
        self._session = session
        self._stopped = False
        self._unwritten = 0
        self._filter_bytes = FILTER_BYTES
        #: What the peer holds, in bytes, as far as its last filter and what it was sent tell.
        self._peer_bytes: float | None = None
        self._sync_call: IDelayedCall | None = None
        self._sweep: Sweep | None = None
        self._settle_call: IDelayedCall | None = None
        #: What is known of whether the peer is in sync; None: nothing yet.
        self.agreement: Agreement | None = None
        self.comparing = Comparing(self, self._compared)
        self._evidence = SyncEvidence(feed.kept)
        #: How long after a plan the peer is compared with; grows while the sums stay different.
        self._doubt = DOUBT_SECONDS
        now = self.context.clock.seconds()
        self._round_over_at, self._full_plan_at = now, now + FULL_PLAN_SECONDS
        self.outflow = Outflow(self.context.clock, failed=self._job_failed)
        self._asked = Asked()
        self._broadcast = Broadcast(self, feed.top_seq)
        self._replies = Replies(self)
        self._ask_on = AskOn(self, self._asked)
        limits = self.context.limits
        self._budget = WorkBudget(
            rate=limits.sync_rate, burst=limits.sync_burst, now=self.context.clock.seconds()
        )
        self._unsubscribe = feed.subscribe(self._broadcast.offer)

    def start(self) -> None:
        """Join the feed's peers and begin to ask: the dialler first, the other after its Sync."""
        self.feed.add_peer(self)
        self.feed.learn(self.remote.chain, self.remote_key)
        self._issue_link()
        for bounds in self.feed.interests:
            self.request(bounds)
        wait = 0.0 if self.connection.outgoing else self.context.sync.answer_wait
        self._sync_call = self.context.clock.callLater(wait, self.sync_now)

    def stop(self) -> None:
        """Leave the feed's peers; nothing is sent any more."""
        if self._stopped:
            return
        self._stopped = True
        self._unsubscribe()
        self.outflow.stopProducing()
        self.feed.remove_peer(self)
        self.feed.past.add(self.figures)
        self.comparing.stop()
        for call in (self._sync_call, self._settle_call):
            if call is not None and call.active():
                call.cancel()

    @property
    def own_chain(self) -> Chain:
        """The chain this node has proved itself with here."""
        credentials = self._session.credentials
        return Chain(self.feed.key) if credentials is None else credentials.chain

    @property
    def is_behind(self) -> bool:
        """Whether this peer has as much waiting here as it may."""
        limits = self.context.limits
        crowded = self._unwritten > 0 and self.context.writer.queued_bytes >= limits.queued_bytes
        if crowded or self._unwritten >= limits.unwritten_bytes:
            return True
        # A peer that does not read our answers may be waiting until we read its own.
        ignored = self.outflow.stalled_since(self.context.clock.seconds()) >= IGNORED_SECONDS
        return self._has_enough_questions and not ignored

    @property
    def _has_enough_questions(self) -> bool:
        return len(self._replies) >= self.context.limits.pending_requests

    @property
    def owes_answers(self) -> bool:
        """Whether so many of the peer's questions wait here that our own had better wait, too."""
        return len(self._replies) > self.context.limits.pending_requests // 2

    @property
    def awaits_reply(self) -> bool:
        """Whether a peer that cannot split its replies has been asked and not answered yet."""
        return self._asked.is_waiting(now=self.context.clock.seconds())

    # What the peer says

    def take(self, event: Event) -> None:
        """One event of the secure session."""
        match event:
            case DataReceived():
                self._take_data(event)
            case SyncReceived():
                self._take_sync(event.sync)
            case RequestReceived():
                feed = self.feed
                self._answer(reply_to_request(event.request, feed.read_for_reply, feed.was_here()))
            case DigestRequested():
                self.comparing.take_request(event.request)
            case DigestReceived():
                self.comparing.take_digest(event.digest)
            case LinkReceived():
                if self.context.denied.first_of(event.chain) is None:
                    self.feed.learn(event.chain, self.remote_key)
                    self._session.use_chain(event.chain)
            case DataRefused(reason="expired"):
                # No fault of the peer's: it was on its way while the time ran out.
                self.connection.close(Refused("expired", "a link of its chain has expired"))
            case DataRefused():
                self.connection.strike(f"its values were refused ({event.reason})")
            case FilterOptionsReceived():
                self._filter_bytes = min(FILTER_BYTES, max(event.size // 8, LEAST_FILTER_BYTES))
            case _:
                log.debug("{peer}: {event}", peer=self.connection.name, event=type(event).__name__)

    def _take_data(self, event: DataReceived) -> None:
        values, size = event.values, event.size
        self.figures.values_in += len(values)
        self.figures.last_data = self.context.now()
        self._broadcast.peer_has(values)
        if self._ask_on.received(values):
            self.feed.reply_arrived(self.remote_key)
        self._unwritten += size

        def stored(appended: Appended) -> None:
            if appended.values:
                self.figures.values_new += len(appended.values)
                self.figures.last_new = self.context.now()

        def not_stored(failure: Failure) -> None:
            failure.trap(StoreError)
            self.connection.close(Refused("store", f"values could not be stored: {failure.value}"))

        def written(_: object) -> None:
            self._unwritten -= size
            self.connection.release()

        accepted = self.feed.accept(values, self.remote_key)
        accepted.addCallbacks(stored, not_stored)
        accepted.addErrback(self._job_failed)
        accepted.addBoth(written)

    def _take_sync(self, sync: Sync) -> None:
        self.figures.last_sync_received = self.context.now()
        self.figures.syncs_received += 1
        limits = self.context.limits
        if sync.n > limits.hash_functions:
            options = FilterOptions(size=FILTER_BYTES * 8, n=limits.hash_functions)
            if self.splits_replies:  # npm 2.x drops the connection on a FilterOptions
                self.connection.write(self._session.send_filter_options(options))
            self.connection.strike(f"its filter has {sync.n} hash functions")
            return
        self._weigh(sync)
        feed = self.feed
        self._answer(reply_to_sync(sync, feed.read_for_reply, feed.was_here()))

    def _answer(self, reply: Reply) -> None:
        """Put an answer behind the others; a peer that reads none gets no more of them."""
        if not self._has_enough_questions:
            self._replies.add(reply)

    def _weigh(self, sync: Sync) -> None:
        """Learn from the peer's filter how much it holds, and let its first Sync start ours."""
        self._peer_bytes = None
        if sync.range is None:
            set_bits = int.from_bytes(sync.filter, "little").bit_count()
            theirs = estimate_count(set_bits, sync.size, sync.n)
            self._peer_bytes = theirs * self.feed.mean_value_bytes
        if self._sweep is not None and self._peer_bytes is not None:
            self._sweep.consider(self._peer_bytes)
        elif self._sync_call is not None and self.figures.last_sync_sent is None:
            self._sync_call.reset(0)

    # What the peer is told

    def send_values(self, values: Sequence[bytes]) -> None:
        """Send values in as many signed Data as they need."""
        if self._stopped or not values:
            return
        for portion in pack_values(values):
            self.connection.write(self._session.send_data(portion))
            self._count_out(portion)

    def send_signed(self, messages: Sequence[Data]) -> None:
        """Send Data that the feed has signed for all its peers."""
        for message in () if self._stopped else messages:
            self.connection.write(self._session.send_signed_data(message))
            self._count_out(message.values)

    def _count_out(self, values: Sequence[bytes]) -> None:
        self.figures.values_out += len(values)
        if self._peer_bytes is not None:
            self._peer_bytes += sum(map(len, values))

    def ask(self, question: Sync | Request, wanted: int | None = None) -> None:
        """Send a question; one with a limit is remembered, so that it can be asked on."""
        if self._stopped:
            return
        if question.limit is not None and not self.splits_replies:
            deadline = self.context.clock.seconds() + ANSWER_SECONDS
            self._asked.ask(question, deadline=deadline, wanted=wanted)
        if isinstance(question, Request):
            self.connection.write(self._session.send_request(question))
            return
        self.connection.write(self._session.send_sync(question))
        self.figures.last_sync_sent = self.context.now()
        self.figures.syncs_sent += 1

    def send_digest_request(self, request: DigestRequest) -> None:
        """Ask what the peer holds."""
        if not self._stopped:
            self.connection.write(self._session.send_digest_request(request))

    def send_digest(self, digest: Digest) -> None:
        """Tell what is held here."""
        if not self._stopped:
            self.connection.write(self._session.send_digest(digest))

    def request(self, bounds: KeyRange, limit: int | None = None) -> None:
        """Ask for the values of a range, `limit` of them in all."""
        most = [number for number in (limit, self.reply_limit()) if number is not None]
        question = Request(start=bounds[0], end=bounds[1], limit=min(most) if most else None)
        self.ask(question, wanted=limit)

    def reply_limit(self) -> int | None:
        """The limit a question to this peer carries; None where it splits its replies."""
        if self.splits_replies:
            return None
        return reply_limit(self.feed.mean_value_bytes, self.feed.reply_scale(self.remote_key))

    def sync_now(self) -> None:
        """See whether the peer holds the same, and begin a plan if not, or if that cannot be seen.

        Nothing where either is under way. Once in FULL_PLAN_SECONDS there is a plan all the same.
        """
        self._sync_call = None
        if self._stopped or self._sweep is not None or self.comparing.is_asking:
            return
        if self.comparing.is_possible:
            self.comparing.ask()
        else:
            self._begin_plan()

    def hurry(self) -> None:
        """Somebody waits until this peer is in sync: do not wait for the interval."""
        rested = self.context.clock.seconds() - self._round_over_at >= HURRY_SECONDS
        if rested and self._sync_call is not None and self._settle_call is None:
            self._sync_call.cancel()
            self._sync_call = self.context.clock.callLater(0, self.sync_now)

    @property
    def _values_moved(self) -> int:
        """Values that came from the peer and went to it."""
        return self.figures.values_in + self.figures.values_out

    def _compared(self, agreement: Agreement | None, seconds: float) -> None:
        if self._stopped:
            return
        self.agreement = agreement or self.agreement
        due = self.context.clock.seconds() >= self._full_plan_at
        in_sync = agreement is not None and agreement.in_sync
        if in_sync:
            self._doubt = DOUBT_SECONDS
        if in_sync and not due:
            self.sweep_done(seconds)
        else:
            self._begin_plan()

    def _begin_plan(self) -> None:
        """Ask by a plan with a fresh seed a filter."""
        self._full_plan_at = self.context.clock.seconds() + FULL_PLAN_SECONDS
        plan = self.feed.plan(self._filter_bytes)
        if plan.done:
            self.sweep_done()
            return
        self._sweep = Sweep(self, plan, self._asked)
        self._evidence.plan_begins(at=self.context.now(), new_values=self.figures.values_new)
        if self._peer_bytes is not None:
            self._sweep.consider(self._peer_bytes)
        self.outflow.add(self._sweep)

    def sweep_done(self, seconds: float = 0.0) -> None:
        """The plan is asked: the next one after the interval, with jitter.

        A false positive of a filter hides a value from its plan. Where the peer can be compared
        with, this is seen once nothing comes any more, and the next plan follows at once.

        `seconds` is what making the filters took. A large feed with many peers is asked less
        often, so that plans take no more than `SYNC_SHARE` of the node's time.
        """
        planned, self._sweep = self._sweep is not None, None
        self._round_over_at = self.context.clock.seconds()
        self.figures.sync_seconds += seconds
        if not self._stopped:
            if planned and not self.comparing.is_possible:
                self._settle_call = self.context.clock.callLater(ANSWER_SECONDS, self._settle)
            least = seconds * len(self.feed.peers) / SYNC_SHARE
            wait = self.context.jittered(max(self.context.sync.interval, least))
            if planned and self.comparing.is_possible and self._doubt < wait:
                self._look_later(max(self._doubt, least), until=self._round_over_at + wait)
                self._doubt *= DOUBT_FACTOR
            else:
                self._sync_call = self.context.clock.callLater(wait, self.sync_now)

    def _look_later(self, wait: float, *, until: float) -> None:
        """See whether the plan has left a difference, `wait` seconds after the last value moved.

        `until` a moment, at the latest: while values are put all the time, none is the last.
        """
        clock, before = self.context.clock, self._values_moved

        def look() -> None:
            moves = self._values_moved != before or self._unwritten or len(self._ask_on)
            if moves and clock.seconds() < until:
                self._look_later(wait, until=until)
            else:
                self.sync_now()

        self._sync_call = clock.callLater(max(min(wait, until - clock.seconds()), 0.0), look)

    def _settle(self) -> None:
        """The answers to our plan are in, as far as can be told: what do they show?"""
        self._settle_call = None
        if self._stopped or self._sweep is not None:
            return
        if self.awaits_reply or self._unwritten or len(self._ask_on):
            self._settle_call = self.context.clock.callLater(ANSWER_SECONDS, self._settle)
            return
        all_sent = not len(self._replies) and self._broadcast.cursor >= self.feed.top_seq
        shown = self._evidence.plan_ends(new_values=self.figures.values_new, all_sent=all_sent)
        self.agreement = shown or self.agreement

    def answered(self, tested: int) -> float:
        """Count the work of an answer; seconds until the next step may be taken."""
        self.figures.values_tested += tested
        return self._budget.spend(tested, now=self.context.clock.seconds())

    def answer_done(self, reply: Reply) -> None:
        """A question is answered: there may be room for the next."""
        if reply.about is not None and not reply.was_cut:
            self._evidence.sync_answered(reply.about)
        self.connection.release()

    def status(self, bytes_in: int, bytes_out: int, strikes: int) -> PeerStatus:
        """A picture of this connection."""
        remote, figures, agreement = self.remote, self.figures, self.agreement
        return PeerStatus(
            feed=self.feed.key,
            address=self.connection.name,
            outgoing=self.connection.outgoing,
            key=remote.key,
            id=remote.id,
            chain_links=len(remote.chain),
            expires=remote.expires if math.isfinite(remote.expires) else None,
            extensions=tuple(remote.extensions),
            since=self.since,
            values_in=figures.values_in,
            values_new=figures.values_new,
            values_out=figures.values_out,
            bytes_in=bytes_in,
            bytes_out=bytes_out,
            last_sync_sent=figures.last_sync_sent,
            last_sync_received=figures.last_sync_received,
            last_data=figures.last_data,
            last_new=figures.last_new,
            strikes=strikes,
            in_sync=None if agreement is None else agreement.in_sync,
            in_sync_at=None if agreement is None else agreement.at,
            in_sync_by=None if agreement is None else agreement.source,
        )

    def _issue_link(self) -> None:
        expires = self._session.link_due() if self.feed.settings.issue_links else None
        chain = self.feed.chain
        # A Link lasts as long as the peer's own chain, and none may outlive ours.
        if expires is None or chain is None or chain.expires < expires:
            return
        try:
            issued = self.feed.issue_link(self.remote_key, expires=expires, share=PEERS_SHARE)
        except (NotTrusted, ValueError) as error:
            log.info("No link for {peer}: {why}", peer=self.connection.name, why=error)
            return
        issued.addCallback(self._send_link).addErrback(self._job_failed)

    def _send_link(self, link: TrustLink) -> None:
        if not self._stopped:
            self.connection.write(self._session.send_link(link))

    def _job_failed(self, failure: Failure) -> None:
        if failure.check(StoreError, LocalProtocolError):
            log.error("{peer}: {why}", peer=self.connection.name, why=failure.value)
        else:
            log.failure("{peer}: unexpected", failure=failure, peer=self.connection.name)
        self.connection.close(Refused("failed", "this node could not go on with the connection"))
