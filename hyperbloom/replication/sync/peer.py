"""A secure connection and its feed: what the peer's messages mean and what it is sent.

Made when the handshake is done, stopped when the connection closes. It counts what this peer has
waiting for the disk and for an answer, which counts against the share of its key; `is_behind` tells
the connection to take no more frames.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.replication.counters import Figures
from hyperbloom.replication.feed.membership import PEERS_SHARE, NotTrusted
from hyperbloom.replication.limits import (
    MAX_ASKED_BYTES,
    MAX_UNSENT_BYTES,
)
from hyperbloom.replication.settings import KeyRange
from hyperbloom.replication.status import PeerStatus
from hyperbloom.replication.sync.arrivals import Arrivals
from hyperbloom.replication.sync.plan import FILTER_BYTES, Asked, reply_limit
from hyperbloom.replication.sync.reply import Reply, reply_to_request, reply_to_sync
from hyperbloom.replication.sync.send_jobs import AskOn, Broadcast, Replies
from hyperbloom.replication.sync.send_scheduler import Outflow
from hyperbloom.replication.sync.sync_schedule import ANSWER_SECONDS, Rounds
from hyperbloom.store import StoreError
from hyperbloom.trust import Chain, TrustLink
from hyperbloom.wire import (
    Data,
    Digest,
    DigestRequest,
    FilterOptions,
    LocalProtocolError,
    Request,
    Session,
    Sync,
)
from hyperbloom.wire.events import (
    DataReceived,
    DataRefused,
    DigestReceived,
    DigestRequested,
    Event,
    FilterOptionsReceived,
    LinkReceived,
    RemotePeer,
    RequestReceived,
    SyncReceived,
)
from hyperbloom.wire.packing import pack_values
from hyperbloom.wire.set_digest import SET_DIGEST

if TYPE_CHECKING:
    from hyperbloom.replication.feed.feed import Feed

__all__ = ["SPLITS_REPLIES", "Connection", "Peering", "extensions_of"]

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
    return (SPLITS_REPLIES, SET_DIGEST) if feed.speaks_set_digest else (SPLITS_REPLIES,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What a peering needs of its connection.

    write: bytes to the transport. release: the peer is no longer behind, frames may be taken.
    strike: the peer broke a rule, in words. close: end the connection. tell: a kind of event and
    what it was, for the log.
    """

    name: str
    outgoing: bool
    write: Callable[[bytes], None]
    release: Callable[[], None]
    strike: Callable[[str], None]
    close: Callable[[CloseReason], None]
    tell: Callable[[str, str], None]


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
        #: Whether something showed that the key's holder is really there, and who waits for it.
        self.is_shown = False
        self._when_shown: list[Callable[[], None]] = []
        self._unsent = 0
        self._work: Deferred[Any] | None = None
        #: What all connections of this key together may use.
        self.share = self.context.shares.join(remote.key)
        self.outflow = Outflow(self.context.clock, failed=self.job_failed)
        self._asked = Asked()
        self.rounds = Rounds(self, self._asked)
        self._broadcast = Broadcast(self, feed.top_seq)
        self._replies = Replies(self)
        self._ask_on = AskOn(self, self._asked)
        self._arrivals = Arrivals(self)
        self._unsubscribe = feed.subscribe(self._broadcast.offer)

    def start(self) -> None:
        """Join the feed's peers and begin to ask: the dialler first, the other after its Sync."""
        self.feed.add_peer(self)
        self.feed.learn(self.remote.chain, self.remote_key)
        self._issue_link()
        for bounds in self.feed.interests:
            self.request(bounds)
        self.rounds.begin(0.0 if self.connection.outgoing else self.context.sync.answer_wait)

    def stop(self) -> None:
        """Leave the feed's peers; nothing is sent any more."""
        if self._stopped:
            return
        self._stopped = True
        self._unsubscribe()
        self.outflow.stopProducing()
        self._replies.drop()
        if self._work is not None:
            # What waits for its turn holds a filter, and who comes again and again leaves many.
            self._work.cancel()
        self.share.unsent -= self._unsent
        self._unsent = 0
        self.share.forget(self.connection.release)
        self.context.shares.leave(self.share)
        self.share.wake()
        self.feed.remove_peer(self)
        self.feed.past.add(self.figures)
        self.rounds.stop()

    @property
    def own_chain(self) -> Chain:
        """The chain this node has proved itself with here."""
        credentials = self._session.credentials
        return Chain(self.feed.key) if credentials is None else credentials.chain

    @property
    def is_behind(self) -> bool:
        """Whether this peer has as much waiting here as it may, over all its connections."""
        limits, share = self.context.limits, self.share
        crowded = share.unwritten > 0 and self.context.writer.queued_bytes >= limits.queued_bytes
        if crowded or share.unwritten >= limits.unwritten_bytes or self.context.shares.rests(share):
            return True
        # A peer that does not read our answers may be waiting until we read its own.
        ignored = self.outflow.stalled_since(self.context.clock.seconds()) >= IGNORED_SECONDS
        return self._has_enough_questions and not ignored

    def wait_for_room(self) -> None:
        """It is behind: have the connection look again when that may have changed."""
        self.share.wait(self.connection.release)
        if self.context.shares.rests(self.share):
            self.share.wake_after_rest(self.context.clock)

    @property
    def _has_enough_questions(self) -> bool:
        waiting = len(self._replies)
        return waiting >= self.context.limits.pending_requests or (
            waiting > 0 and self.share.asked >= MAX_ASKED_BYTES
        )

    @property
    def has_room_for_answers(self) -> bool:
        """Whether the key has read enough of what was sent to it, on all its connections."""
        return self.share.unsent < MAX_UNSENT_BYTES

    @property
    def owes_answers(self) -> bool:
        """Whether so many of the peer's questions wait here that our own had better wait, too."""
        return len(self._replies) > self.context.limits.pending_requests // 2

    @property
    def is_receiving(self) -> bool:
        """Whether values of the peer wait for the disk, or for being asked for."""
        return self._arrivals.bytes > 0 or len(self._ask_on) > 0

    @property
    def is_sending(self) -> bool:
        """Whether the peer has questions that wait here, or was not sent all that is new."""
        return len(self._replies) > 0 or self._broadcast.cursor < self.feed.top_seq

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
                self.rounds.comparing.take_request(event.request)
            case DigestReceived():
                self.rounds.comparing.take_digest(event.digest)
            case LinkReceived():
                if self.context.denied.first_of(event.chain) is None:
                    self.feed.learn(event.chain, self.remote_key)
                    self._session.use_chain(event.chain)
            case DataRefused(reason="expired"):
                # No fault of the peer's: it was on its way while the time ran out.
                self.connection.close(CloseReason("expired", "a link of its chain has expired"))
            case DataRefused():
                self.connection.strike(f"its values were refused ({event.reason})")
            case FilterOptionsReceived():
                self.rounds.peer_takes(filter_bytes=event.size // 8)
            case _:
                log.debug("{peer}: {event}", peer=self.connection.name, event=type(event).__name__)

    def _take_data(self, event: DataReceived) -> None:
        values = event.values
        self.figures.values_in += len(values)
        self.figures.last_data = self.context.now()
        self._broadcast.peer_has(values)
        if self._ask_on.received(values):
            self.feed.reply_arrived(self.remote_key)
        self._arrivals.add(values)

    def brought_new(self, count: int) -> None:
        """So many values that it sent are on disk, and were new here."""
        self.figures.values_new += count
        self.figures.last_new = self.context.now()
        self._show()

    def when_shown(self, call: Callable[[], None]) -> None:
        """Call once something shows that the holder of the peer's key is really there.

        Its Handshake does not: whoever it was made for can pass it on. A value that was new here
        and came signed by the key does, as far as protocol 2 can show it.
        """
        if self.is_shown:
            call()
        else:
            self._when_shown.append(call)

    def _show(self) -> None:
        if not self.feed.dialect.data_signed:
            return
        self.is_shown = True
        waiting, self._when_shown = self._when_shown, []
        for call in waiting:
            call()

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
        self.rounds.peer_asked(sync)
        feed = self.feed
        self._answer(reply_to_sync(sync, feed.read_for_reply, feed.was_here()))

    def _answer(self, reply: Reply) -> None:
        """Put an answer behind the others; a peer that reads none gets no more of them."""
        if not self._has_enough_questions:
            self._replies.add(reply)

    # What the peer is told

    def work(self, call: Callable[[], T]) -> Deferred[T]:
        """Do in a thread what is to be done because of this peer, when it is its turn."""
        work = self.context.work_for(self.share, call)
        self._work = work
        return work

    def send_answer(self, values: Sequence[bytes]) -> None:
        """Send values that were asked for: signing and encrypting them counts as its work."""
        work_seconds = self.context.work_seconds
        begun = work_seconds()
        self.send_values(values)
        self.context.shares.charge(self.share, work_seconds() - begun)

    def _write(self, data: bytes) -> None:
        """Send bytes, and count what the peer has not read while the connection is full."""
        if not self.outflow.paused:
            self.share.unsent -= self._unsent
            self._unsent = 0
        self.share.unsent += len(data)
        self._unsent += len(data)
        self.connection.write(data)

    def send_values(self, values: Sequence[bytes]) -> None:
        """Send values in as many signed Data as they need."""
        if self._stopped or not values:
            return
        for portion in pack_values(values):
            self._write(self._session.send_data(portion))
            self._count_out(portion)

    def send_signed(self, messages: Sequence[Data]) -> None:
        """Send Data that the feed has signed for all its peers."""
        for message in () if self._stopped else messages:
            self._write(self._session.send_signed_data(message))
            self._count_out(message.values)

    def _count_out(self, values: Sequence[bytes]) -> None:
        self.figures.values_out += len(values)
        self.rounds.peer_was_sent(values)

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

    def answered(self, tested: int) -> float:
        """Count the work of an answer; seconds until the next step may be taken."""
        self.figures.values_tested += tested
        return self.share.budget.spend(tested, now=self.context.clock.seconds())

    def answer_done(self, reply: Reply) -> None:
        """A question is answered: there may be room for the next."""
        if reply.about is not None and not reply.was_cut:
            self.rounds.peer_was_answered(reply.about)
        self.share.wake()

    def status(self, bytes_in: int, bytes_out: int, strikes: int) -> PeerStatus:
        """A picture of this connection."""
        remote, figures, agreement = self.remote, self.figures, self.rounds.agreement
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
            self.connection.tell("no-link", f"no link is issued to it: {error}")
            return
        issued.addCallback(self._send_link).addErrback(self.job_failed)

    def _send_link(self, link: TrustLink) -> None:
        if not self._stopped:
            self.connection.write(self._session.send_link(link))

    def job_failed(self, failure: Failure) -> None:
        """Something went wrong here: end the connection, and say so in the log."""
        if failure.check(StoreError, LocalProtocolError):
            log.error("{peer}: {why}", peer=self.connection.name, why=failure.value)
        else:
            log.failure("{peer}: unexpected", failure=failure, peer=self.connection.name)
        self.connection.close(
            CloseReason("failed", "this node could not go on with the connection")
        )
