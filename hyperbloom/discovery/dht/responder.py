"""The server's side: what a query is answered with."""

from __future__ import annotations

from hyperbloom.discovery.dht.contact import Address, may_tell
from hyperbloom.discovery.dht.errors import ErrorCode, Refusal
from hyperbloom.discovery.dht.limits import NODES_TOLD
from hyperbloom.discovery.dht.messages import (
    AnnouncePeer,
    ErrorMessage,
    FindNode,
    Get,
    GetPeers,
    Ping,
    PutImmutable,
    PutMutable,
    Query,
    Response,
    UnknownQuery,
)
from hyperbloom.discovery.dht.routing_table import RoutingTable
from hyperbloom.discovery.dht.storage import Storage
from hyperbloom.discovery.dht.tokens import Tokens

__all__ = ["Responder"]


class Responder:
    """Answers from a routing table, a storage and tokens.

    A put is answered with nothing but the id, since mainline (Rust) does not count an answer that
    carries more; a get always with a token and nodes.
    """

    def __init__(self, table: RoutingTable, storage: Storage, tokens: Tokens) -> None:
        self.table = table
        self._storage, self._tokens = storage, tokens

    def answer(self, query: Query, asker: Address, *, now: float) -> Response | ErrorMessage:
        """The answer to a query from this address."""
        try:
            return self._answer(query, asker, now)
        except Refusal as refusal:
            return ErrorMessage(code=refusal.code, text=str(refusal))

    def _answer(self, query: Query, asker: Address, now: float) -> Response:
        match query:
            case Ping():
                return Response()
            case FindNode(target=target):
                return self._near(target, asker)
            case Get(target=target, seq=seq):
                return self._get(target, seq, asker, now)
            case GetPeers(info_hash=info_hash):
                peers = self._storage.peers(info_hash, now=now)
                told = tuple(peer for peer in peers if may_tell(asker.host, peer.host))
                token = self._tokens.token_for(asker, now=now)
                return self._near(info_hash, asker, token=token, peers=told or None)
            case AnnouncePeer():
                self._check_token(query.token, asker, now)
                port = asker.port if query.implied_port else query.port
                self._storage.announce(query.info_hash, Address(asker.host, port), now=now)
                return Response()
            case PutMutable():
                self._check_token(query.token, asker, now)
                self._storage.put_mutable(query, now=now)
                return Response()
            case PutImmutable():
                self._check_token(query.token, asker, now)
                self._storage.put_immutable(query, now=now)
                return Response()
            case UnknownQuery(problem=None):
                raise Refusal(ErrorCode.METHOD_UNKNOWN, "method unknown")
            case UnknownQuery(problem=problem):
                raise Refusal(ErrorCode.PROTOCOL, f"invalid arguments: {problem}")

    def _get(self, target: bytes, seq: int | None, asker: Address, now: float) -> Response:
        token = self._tokens.token_for(asker, now=now)
        item = self._storage.mutable(target, now=now)
        if item is None:
            value = self._storage.immutable(target, now=now)
            return self._near(target, asker, token=token, value=value)
        if seq is not None and seq >= item.seq:
            return self._near(target, asker, token=token, seq=item.seq)
        return self._near(
            target,
            asker,
            token=token,
            value=item.value,
            public_key=item.public_key,
            seq=item.seq,
            signature=item.signature,
        )

    def _near(
        self,
        target: bytes,
        asker: Address,
        *,
        token: bytes | None = None,
        peers: tuple[Address, ...] | None = None,
        value: bytes | None = None,
        public_key: bytes | None = None,
        seq: int | None = None,
        signature: bytes | None = None,
    ) -> Response:
        """A response with the closest nodes, which are of the asker's family, and more."""
        known = self.table.closest(target, NODES_TOLD)
        nodes = tuple(node for node in known if may_tell(asker.host, node.address.host))
        ipv6 = ":" in asker.host
        return Response(
            nodes=None if ipv6 else nodes,
            nodes6=nodes if ipv6 else None,
            token=token,
            peers=peers,
            value=value,
            public_key=public_key,
            seq=seq,
            signature=signature,
        )

    def _check_token(self, token: bytes, asker: Address, now: float) -> None:
        if not self._tokens.is_good(token, asker, now=now):
            raise Refusal(ErrorCode.PROTOCOL, "bad token")
