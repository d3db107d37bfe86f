"""What each error of the node is to who asks: the problem's type and status, and the exit code.

Programs rely on them, whatever class an error has.
"""

from __future__ import annotations

import pytest

from hyperbloom.api.control_socket import SocketBusy, SocketError
from hyperbloom.api.problems import Problem, problem_of
from hyperbloom.cli.app import code_of
from hyperbloom.cli.commands.dht_session import (
    DhtTimeout,
    NoNodeAnswered,
    PortTaken,
    StateUnusable,
)
from hyperbloom.cli.guard import ReaderDied
from hyperbloom.client.client import NodeTimeout, NodeUnreachable
from hyperbloom.config import ConfigError
from hyperbloom.errors import ErrorKind, HyperbloomError, LocalProtocolError, RemoteProtocolError
from hyperbloom.export.errors import (
    ExportBusy,
    ExportError,
    ExportFull,
    MasterUnreachable,
    MissingJava,
    SnapshotUnusable,
)
from hyperbloom.invitation import InvitationError
from hyperbloom.keys import KeyFileError
from hyperbloom.objects.wire.errors import ClashError, ObjectError, ObjectGone, PoolFull
from hyperbloom.replication.feed.fetch import TooManyFetches
from hyperbloom.replication.feed.membership import KeyDenied, NotTrusted
from hyperbloom.replication.feeds import UnknownFeed
from hyperbloom.replication.sync.wait_synced import NotInSync, TooManyWaits, UnknownPeer
from hyperbloom.store import (
    ForeignSnapshot,
    NoSuchFeed,
    StoreCorrupt,
    StoreError,
    StoreExists,
    StoreFull,
    StoreLocked,
)
from hyperbloom.trust import ChainError, ChainExpired, ChainForged

#: What the API answers with.
ANSWERED = [
    (UnknownFeed, "unknown-feed", 404),
    (NoSuchFeed, "unknown-feed", 404),
    (LookupError, "unknown-feed", 404),
    (TooManyFetches, "too-many", 429),
    (TooManyWaits, "too-many", 429),
    (PoolFull, "too-many", 429),
    (ObjectGone, "unknown-object", 404),
    (ObjectError, "conflict", 409),
    (ClashError, "conflict", 409),
    (LocalProtocolError, "bad-request", 400),
    (UnknownPeer, "unknown-peer", 404),
    (NotInSync, "not-in-sync", 504),
    (TimeoutError, "timeout", 504),
    (NotTrusted, "not-trusted", 403),
    (KeyDenied, "not-trusted", 403),
    (ChainExpired, "expired", 403),
    (ChainError, "bad-chain", 422),
    (ChainForged, "bad-chain", 422),
    (StoreFull, "store-full", 507),
    (StoreError, "store", 503),
    (StoreLocked, "store", 503),
    (ConfigError, "bad-config", 422),
    (KeyFileError, "bad-config", 422),
    (InvitationError, "bad-invitation", 422),
]

#: What a command ends with.
ENDED = [
    (ConfigError, 3),
    (KeyFileError, 3),
    (InvitationError, 3),
    (NodeUnreachable, 4),
    (NodeTimeout, 6),
    (StoreExists, 1),
    (ForeignSnapshot, 1),
    (NoSuchFeed, 8),
    (StoreError, 7),
    (StoreCorrupt, 7),
    (StoreFull, 7),
    (ReaderDied, 7),
    (NoNodeAnswered, 4),
    (StateUnusable, 3),
    (DhtTimeout, 6),
    (LocalProtocolError, 1),
    (PortTaken, 9),
    (SocketBusy, 9),
    (SocketError, 3),
    (SnapshotUnusable, 7),
    (ExportFull, 7),
    (ExportBusy, 9),
    (MasterUnreachable, 4),
    (ExportError, 1),
    (MissingJava, 1),
]

#: What a command ends with when the node answers with a problem.
ANSWERED_AND_ENDED = {
    "not-trusted": 5, "expired": 5, "bad-chain": 5, "bad-config": 3, "bad-invitation": 3,
    "unknown-feed": 8, "unknown-object": 8, "unknown-peer": 8, "not-in-sync": 6, "timeout": 6,
    "store": 7, "store-full": 7, "unexpected": 70, "bad-request": 1, "unauthorized": 1,
    "forbidden": 1, "not-found": 1, "method-not-allowed": 1, "conflict": 1, "too-large": 1,
    "too-many": 1,
}  # fmt: skip


def made(error: type[Exception]) -> Exception:
    return error(0, "a sentence") if issubclass(error, ChainError) else error("a sentence")


@pytest.mark.parametrize(("error", "name", "status"), ANSWERED)
def test_what_the_api_answers(error, name, status):
    problem = problem_of(made(error))
    assert problem is not None
    assert (problem.kind.type, problem.kind.status) == (f"urn:hyperbloom:problem:{name}", status)
    assert "a sentence" in problem.detail


@pytest.mark.parametrize(("error", "code"), ENDED)
def test_what_a_command_ends_with(error, code):
    assert code_of(made(error)) == code


def test_what_a_command_ends_with_by_what_the_node_answers():
    ends = {kind.type.rpartition(":")[2]: code_of(Problem(kind, "x")) for kind in ErrorKind}
    assert {name: ends[name] for name in ANSWERED_AND_ENDED} == ANSWERED_AND_ENDED


@pytest.mark.parametrize(
    "error", [HyperbloomError, RemoteProtocolError, KeyError, ValueError, ZeroDivisionError]
)
def test_what_nobody_foresaw_is_nobodys_sentence(error):
    assert problem_of(error("x")) is None
    assert code_of(error("x")) is None
