"""The server's side: what a query is answered with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common.compact import NODE6_BYTES, NODE_BYTES
from hyperbloom.discovery.dht.common.contact import Contact
from hyperbloom.discovery.dht.common.errors import ErrorCode, QueryRefused
from hyperbloom.discovery.dht.common.krpc import encode_packet
from hyperbloom.discovery.dht.common.messages import (
    AnnouncePeer,
    ErrorMessage,
    FindNode,
    Get,
    GetPeers,
    Packet,
    Ping,
    PutImmutable,
    PutMutable,
    Query,
    Response,
    UnknownQuery,
)
from hyperbloom.discovery.dht.limits import NODES_TOLD
from hyperbloom.discovery.dht.routing_table import RoutingTable
from hyperbloom.discovery.dht.server.storage import Storage
from hyperbloom.discovery.dht.server.tokens import Tokens

__all__ = ["Responder", "shortened"]

#: By how much the length of nodes grows in text, from `0:` to `208:` or `304:`.
_LENGTH_DIGITS: Final = 2


class Responder:
    """Answers from a routing table, a storage and tokens.

    A put is answered with nothing but the id, since mainline (Rust) does not count an answer that
    carries more; a get always with a token and nodes.
    """

    def __init__(
        self,
        table: RoutingTable,
        storage: Storage,
        tokens: Tokens,
        *,
        proved: Callable[[Address, float], None] = lambda address, now: None,
    ) -> None:
        self.table = table
        self._storage, self._tokens, self._proved = storage, tokens, proved

    def own_answer(self, query: Query, *, now: float) -> Response:
        """What this node itself has stored of what a lookup asks others for: no nodes, no token."""
        match query:
            case Get(target=target):
                return self._stored(target, now)
            case GetPeers(info_hash=info_hash):
                return Response(peers=self._storage.peers(info_hash, now=now) or None)
            case _:
                return Response()

    def answer(self, query: Query, asker: Address, *, now: float) -> Response | ErrorMessage:
        """The answer to a query from this address."""
        try:
            return self._answer(query, asker, now)
        except QueryRefused as refusal:
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
                told = tuple(peer for peer in peers if asker.may_name(peer))
                token = self._tokens.token_for(asker, now=now)
                return self._near(info_hash, asker, Response(peers=told or None), token=token)
            case AnnouncePeer():
                self._check_token(query.token, asker, now)
                port = asker.port if query.implied_port else query.port
                self._storage.announce(query.info_hash, Address(asker.host, port), now=now)
                return Response()
            case PutMutable():
                self._check_token(query.token, asker, now)
                self._storage.put_mutable(query, asker, now=now)
                return Response()
            case PutImmutable():
                self._check_token(query.token, asker, now)
                self._storage.put_immutable(query, asker, now=now)
                return Response()
            case UnknownQuery(problem=None):
                raise QueryRefused(ErrorCode.METHOD_UNKNOWN, "method unknown")
            case UnknownQuery(problem=problem):
                raise QueryRefused(ErrorCode.PROTOCOL, f"invalid arguments: {problem}")

    def _get(self, target: bytes, seq: int | None, asker: Address, now: float) -> Response:
        stored = self._stored(target, now)
        if seq is not None and stored.seq is not None and seq >= stored.seq:
            stored = Response(seq=stored.seq)
        return self._near(target, asker, stored, token=self._tokens.token_for(asker, now=now))

    def _stored(self, target: bytes, now: float) -> Response:
        item = self._storage.mutable(target, now=now)
        if item is None:
            return Response(value=self._storage.immutable(target, now=now))
        return Response(
            value=item.value, public_key=item.public_key, seq=item.seq, signature=item.signature
        )

    def _near(
        self,
        target: bytes,
        asker: Address,
        brought: Response = Response(),  # noqa: B008 (frozen)
        *,
        token: bytes | None = None,
    ) -> Response:
        """What is brought, with the closest nodes of the asker's family."""
        known = self.table.closest(target, NODES_TOLD)
        nodes = tuple(node for node in known if _may_be_told(node, asker))
        ipv6 = asker.is_ipv6
        return replace(
            brought, token=token, nodes=None if ipv6 else nodes, nodes6=nodes if ipv6 else None
        )

    def _check_token(self, token: bytes, asker: Address, now: float) -> None:
        if not self._tokens.is_good(token, asker, now=now):
            raise QueryRefused(ErrorCode.PROTOCOL, "bad token")
        self._proved(asker, now)


def _may_be_told(node: Contact, asker: Address) -> bool:
    """One of the other family has no place in `nodes`, or in `nodes6`: its length is another."""
    return node.address.is_ipv6 == asker.is_ipv6 and asker.may_name(node.address)


def shortened(packet: Packet, size: int) -> bytes | None:
    """The bytes of an answer without what makes it longer than `size`; None if none is so short.

    Version, observed address, value and peers go, and as many nodes as have to. The token stays, so
    that its receiver can show that it came.
    """
    bare, message = replace(packet, version=None, observed=None), packet.message
    if isinstance(message, Response):
        bare = replace(bare, message=_with_nodes(message, 0))
    data = encode_packet(bare)
    room = size - len(data) - _LENGTH_DIGITS
    if isinstance(message, Response) and room > 0:
        count = room // (NODE_BYTES if message.nodes6 is None else NODE6_BYTES)
        data = encode_packet(replace(bare, message=_with_nodes(message, count)))
    return data if len(data) <= size else None


def _with_nodes(answer: Response, count: int) -> Response:
    """The token of an answer and its closest nodes, nothing else."""
    nodes, nodes6 = answer.nodes, answer.nodes6
    return Response(
        token=answer.token,
        nodes=None if nodes is None else nodes[:count],
        nodes6=None if nodes6 is None else nodes6[:count],
    )
