"""KRPC: packets as bytes (BEP-5, BEP-32, BEP-42, BEP-43, BEP-44).

A packet is one bencoded dictionary. At its top: `t`, the transaction; `y`, which is `q` for a query
(its name under `q`, its arguments under `a`), `r` for a response (under `r`), `e` for an error
(code and text, a list under `e`). Beside them `v`, the program; `ro`, read-only; `ip`, where the
receiver is seen. The sender's id lies in `a` or `r`.

Deployed nodes are as strict in odd places, and what is written here suits them: mainline (Rust)
drops a packet whose `v` is not 4 bytes, whose `ip` is not 6, whose `nodes` is not a multiple of
26, a response with `ro` = 1, a query whose `t` is not 4 bytes and a put without `target`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from hyperbloom.addresses import Address
from hyperbloom.discovery.dht.common import bencode
from hyperbloom.discovery.dht.common.bencode import Bencoded
from hyperbloom.discovery.dht.common.compact import (
    ADDRESS_BYTES,
    decode_address,
    decode_contacts,
    encode_address,
    encode_contacts,
)
from hyperbloom.discovery.dht.common.contact import ID_BYTES
from hyperbloom.discovery.dht.common.errors import LocalProtocolError, RemoteProtocolError
from hyperbloom.discovery.dht.common.messages import (
    AnnouncePeer,
    ErrorMessage,
    FindNode,
    Get,
    GetPeers,
    Message,
    Packet,
    Ping,
    PutImmutable,
    PutMutable,
    Query,
    Response,
    UnknownQuery,
)
from hyperbloom.discovery.dht.limits import MAX_PACKET_BYTES, MAX_TRANSACTION_BYTES
from hyperbloom.keys import PUBLIC_KEY_BYTES, SIGNATURE_BYTES

__all__ = ["decode_packet", "encode_packet"]

_Dict: TypeAlias = dict[bytes, Bencoded]


# Reading


def decode_packet(data: bytes) -> Packet:
    """The packet in a datagram; raises RemoteProtocolError for anything that is none.

    A query with arguments that do not fit its name becomes an `UnknownQuery` that says so, because
    it can be answered; a response or error that is not sound has nobody to be answered to.
    """
    if len(data) > MAX_PACKET_BYTES:
        raise RemoteProtocolError(f"a packet of {len(data)} bytes")
    top = bencode.decode(data)
    if not isinstance(top, dict):
        raise RemoteProtocolError("a packet that is no dictionary")
    transaction_id = top.get(b"t")
    if not isinstance(transaction_id, bytes) or len(transaction_id) > MAX_TRANSACTION_BYTES:
        raise RemoteProtocolError("a packet without a transaction id")
    node_id, message = _message(top)
    version, observed = top.get(b"v"), top.get(b"ip")
    return Packet(
        transaction_id=transaction_id,
        message=message,
        node_id=node_id,
        read_only=top.get(b"ro") == 1,
        version=version if isinstance(version, bytes) else None,
        observed=decode_address(observed)
        if isinstance(observed, bytes) and len(observed) in ADDRESS_BYTES
        else None,
    )


def _message(top: _Dict) -> tuple[bytes | None, Message]:
    kind = top.get(b"y")
    if kind == b"r":
        body = _dictionary(top, b"r")
        return _id(body), _response(body)
    if kind == b"q":
        body = _dictionary(top, b"a")
        return _id(body), _query(top.get(b"q"), body)
    if kind == b"e":
        return None, _error(top.get(b"e"))
    raise RemoteProtocolError("a packet that is neither query, response nor error")


def _dictionary(top: _Dict, key: bytes) -> _Dict:
    body = top.get(key)
    if not isinstance(body, dict):
        raise RemoteProtocolError(f"a packet without its {key.decode()}")
    return body


def _id(body: _Dict) -> bytes:
    node_id = body.get(b"id")
    if not isinstance(node_id, bytes) or len(node_id) != ID_BYTES:
        raise RemoteProtocolError("a packet without its sender's id")
    return node_id


def _query(name: Bencoded | None, body: _Dict) -> Query:
    reader = _QUERIES.get(name) if isinstance(name, bytes) else None
    if reader is None:
        return UnknownQuery()
    try:
        return reader(body)
    except (RemoteProtocolError, ValueError) as error:
        return UnknownQuery(problem=str(error))


def _ping(body: _Dict) -> Query:
    return Ping()


def _find_node(body: _Dict) -> Query:
    return FindNode(target=_bytes(body, b"target"))


def _get_peers(body: _Dict) -> Query:
    return GetPeers(info_hash=_bytes(body, b"info_hash"))


def _announce_peer(body: _Dict) -> Query:
    return AnnouncePeer(
        info_hash=_bytes(body, b"info_hash"),
        token=_bytes(body, b"token"),
        port=_maybe_int(body, b"port") or 0,
        implied_port=_maybe_int(body, b"implied_port") == 1,
    )


def _get(body: _Dict) -> Query:
    return Get(target=_bytes(body, b"target"), seq=_maybe_int(body, b"seq"))


def _put(body: _Dict) -> Query:
    value = _value(body)
    if value is None:
        raise RemoteProtocolError("no v")
    token, target = _bytes(body, b"token"), _maybe_bytes(body, b"target")
    if b"k" not in body:
        return PutImmutable(token=token, value=value, target=target)
    seq = _maybe_int(body, b"seq")
    if seq is None or seq < 0:
        raise RemoteProtocolError("no seq, or one below 0")
    return PutMutable(
        token=token,
        public_key=_bytes(body, b"k"),
        salt=_maybe_bytes(body, b"salt") or b"",
        seq=seq,
        value=value,
        signature=_bytes(body, b"sig"),
        cas=_maybe_int(body, b"cas"),
        target=target,
    )


_QUERIES: Final[Mapping[bytes, Callable[[_Dict], Query]]] = {
    b"ping": _ping,
    b"find_node": _find_node,
    b"get_peers": _get_peers,
    b"announce_peer": _announce_peer,
    b"get": _get,
    b"put": _put,
}


def _response(body: _Dict) -> Response:
    nodes, nodes6 = _maybe_bytes(body, b"nodes"), _maybe_bytes(body, b"nodes6")
    peers = body.get(b"values")
    return Response(
        nodes=None if nodes is None else decode_contacts(nodes),
        nodes6=None if nodes6 is None else decode_contacts(nodes6, ipv6=True),
        token=_maybe_bytes(body, b"token"),
        peers=None if peers is None else _peers(peers),
        value=_value(body),
        public_key=_maybe_bytes(body, b"k", length=PUBLIC_KEY_BYTES),
        seq=_maybe_int(body, b"seq"),
        signature=_maybe_bytes(body, b"sig", length=SIGNATURE_BYTES),
    )


def _peers(values: Bencoded) -> tuple[Address, ...]:
    if not isinstance(values, list):
        raise RemoteProtocolError("peers that are no list")
    found = []
    for value in values:
        if not isinstance(value, bytes):
            raise RemoteProtocolError("a peer that is no compact address")
        address = decode_address(value)
        if address.port:
            found.append(address)
    return tuple(found)


def _value(body: _Dict) -> bytes | None:
    """`v` in the bytes it came in, which strictly read ones give again."""
    value = body.get(b"v")
    return None if value is None else bencode.encode(value)


def _error(body: Bencoded | None) -> ErrorMessage:
    match body:
        case [int(code), bytes(text), *_]:
            return ErrorMessage(code=code, text=text.decode("utf-8", "replace"))
        case [int(code)]:
            return ErrorMessage(code=code)
    raise RemoteProtocolError("an error without a code")


def _bytes(body: _Dict, key: bytes) -> bytes:
    value = body.get(key)
    if not isinstance(value, bytes):
        raise RemoteProtocolError(f"no {key.decode()}")
    return value


def _maybe_bytes(body: _Dict, key: bytes, *, length: int | None = None) -> bytes | None:
    value = body.get(key)
    if value is None:
        return None
    if not isinstance(value, bytes) or length not in (None, len(value)):
        raise RemoteProtocolError(f"{key.decode()} is no byte string, or not of its length")
    return value


def _maybe_int(body: _Dict, key: bytes) -> int | None:
    value = body.get(key)
    if value is not None and not isinstance(value, int):
        raise RemoteProtocolError(f"{key.decode()} is no integer")
    return value


# Writing


def encode_packet(packet: Packet) -> bytes:
    """The bytes of a packet; raises LocalProtocolError for one that may not be sent."""
    top: _Dict = {b"t": packet.transaction_id}
    if packet.version is not None:
        top[b"v"] = packet.version
    if packet.observed is not None:
        top[b"ip"] = encode_address(packet.observed)
    message = packet.message
    if isinstance(message, ErrorMessage):
        top |= {b"y": b"e", b"e": [message.code, message.text.encode()]}
    elif packet.node_id is None or len(packet.node_id) != ID_BYTES:
        raise LocalProtocolError("only an error goes without its sender's id")
    elif isinstance(message, Response):
        top |= {b"y": b"r", b"r": _write_response(message, packet.node_id)}
    else:
        name, body = _write_query(message)
        top |= {b"y": b"q", b"q": name, b"a": {**body, b"id": packet.node_id}}
        if packet.read_only:
            top[b"ro"] = 1
    data = bencode.encode(top)
    if len(data) > MAX_PACKET_BYTES:
        raise LocalProtocolError(f"a packet of {len(data)} bytes")
    return data


def _write_query(query: Query) -> tuple[bytes, _Dict]:
    match query:
        case Ping():
            return b"ping", {}
        case FindNode(target=target):
            return b"find_node", {b"target": target}
        case GetPeers(info_hash=info_hash):
            return b"get_peers", {b"info_hash": info_hash}
        case AnnouncePeer():
            return b"announce_peer", {
                b"implied_port": int(query.implied_port),
                b"info_hash": query.info_hash,
                b"port": query.port,
                b"token": query.token,
            }
        case Get(target=target, seq=seq):
            asked: _Dict = {b"target": target}
            return b"get", asked if seq is None else {**asked, b"seq": seq}
        case PutImmutable() | PutMutable():
            return b"put", _write_put(query)
        case UnknownQuery():
            raise LocalProtocolError("a query without a name")


def _write_put(put: PutImmutable | PutMutable) -> _Dict:
    body: _Dict = {b"token": put.token, b"v": bencode.decode(put.value)}
    if put.target is not None:
        body[b"target"] = put.target
    if isinstance(put, PutMutable):
        body |= {b"k": put.public_key, b"seq": put.seq, b"sig": put.signature}
        if put.salt:
            body[b"salt"] = put.salt
        if put.cas is not None:
            body[b"cas"] = put.cas
    return body


def _write_response(response: Response, node_id: bytes) -> _Dict:
    body: _Dict = {b"id": node_id}
    if response.nodes is not None:
        body[b"nodes"] = encode_contacts(response.nodes)
    if response.nodes6 is not None:
        body[b"nodes6"] = encode_contacts(response.nodes6, ipv6=True)
    if response.peers is not None:
        body[b"values"] = [encode_address(peer) for peer in response.peers]
    if response.value is not None:
        body[b"v"] = bencode.decode(response.value)
    plain = {
        b"token": response.token,
        b"k": response.public_key,
        b"seq": response.seq,
        b"sig": response.signature,
    }
    return body | {key: value for key, value in plain.items() if value is not None}
