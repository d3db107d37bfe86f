"""What a peer has to prove: that it may take part, that its Data is its own, that its Link holds.

Each is judged against our credentials and the time (seconds since 1970). `leeway` seconds are
granted past the expiry of the peer's links, for clocks that differ.
"""

from __future__ import annotations

from functools import lru_cache

from hyperbloom.keys import verify_signature
from hyperbloom.trust import MAX_CHAIN_LINKS, Chain, ChainError, parse_link, verify_chain
from hyperbloom.wire.credentials import Credentials
from hyperbloom.wire.errors import RemoteProtocolError, UntrustedPeer
from hyperbloom.wire.events import (
    DataReceived,
    DataRefused,
    LinkIgnored,
    LinkReceived,
    RemotePeer,
)
from hyperbloom.wire.limits import MAX_SHARED_EXTENSIONS
from hyperbloom.wire.messages import Data, Handshake, Link

__all__ = ["judge_data", "judge_link", "named_chain", "shared_extensions", "verify_handshake"]


def named_chain(handshake: Handshake, credentials: Credentials) -> Chain | None:
    """The chain in a Handshake; None where a link cannot be read.

    Nothing is verified yet: who is not wanted at all is turned away before that costs anything.
    """
    form = credentials.dialect.link_format
    if len(handshake.chain) > MAX_CHAIN_LINKS:
        return None  # judged with the whole chain
    try:
        links = tuple(parse_link(raw, format=form) for raw in handshake.chain)
    except ValueError:
        return None
    return Chain(credentials.feed_key, links)


def verify_handshake(
    handshake: Handshake, credentials: Credentials, *, signed: bytes, now: float, leeway: float
) -> RemotePeer:
    """The peer that a Handshake proves; ``signed`` is what its signature has to cover.

    Raises UntrustedPeer if the chain does not hold, or another key signed.
    """
    try:
        chain = verify_chain(
            credentials.feed_key,
            handshake.chain,
            now=now,
            leeway=leeway,
            format=credentials.dialect.link_format,
        )
    except ChainError as error:
        raise UntrustedPeer(f"the peer's chain is refused: {error}", reason=error) from error
    if not verify_signature(chain.holder, signed, handshake.signature):
        raise UntrustedPeer("the Handshake is not signed by the last key of its chain")
    return RemotePeer(
        id=handshake.id,
        key=chain.holder,
        chain=chain,
        extensions=shared_extensions(handshake.extensions),
    )


@lru_cache(maxsize=MAX_SHARED_EXTENSIONS)
def shared_extensions(announced: tuple[str, ...]) -> tuple[str, ...]:
    """What one side announces: the same object for all that announce the same."""
    return announced


def judge_data(
    body: bytes, credentials: Credentials, peer: RemotePeer, *, now: float, leeway: float
) -> DataReceived | DataRefused:
    """Values, unless the peer's chain has expired or its signature does not hold.

    Raises RemoteProtocolError for a body that is no Data, or lacks its signature.
    """
    data = Data.decode(body)
    dialect = credentials.dialect
    # Said this way round, a NaN for a clock expires everything, as in trust.
    if not peer.expires + leeway >= now:
        return DataRefused(reason="expired", count=len(data.values))
    if dialect.data_signed:
        if data.signature is None:
            raise RemoteProtocolError("Data lacks its signature")
        covered = dialect.data_input(credentials.feed_key, data.values)
        if not verify_signature(peer.key, covered, data.signature):
            return DataRefused(reason="signature", count=len(data.values))
    return DataReceived(values=data.values, size=len(body) + 1)


def judge_link(
    body: bytes,
    credentials: Credentials,
    peer: RemotePeer,
    local_chain: Chain,
    *,
    now: float,
    leeway: float,
) -> LinkReceived | LinkIgnored:
    """A chain by way of the peer, if it is for our key and shorter than ``local_chain``.

    Raises RemoteProtocolError for a body that is no Link.
    """
    link = Link.decode(body).link
    # A link makes the peer's chain one longer; that must still be shorter than ours.
    if len(local_chain) - 1 <= len(peer.chain):
        return LinkIgnored(reason="it does not make our chain shorter")
    try:
        chain = verify_chain(
            credentials.feed_key,
            (*peer.chain.to_wire(), link),
            now=now,
            leeway=leeway,
            format=credentials.dialect.link_format,
        )
    except ChainError as error:
        return LinkIgnored(reason=str(error))
    if chain.holder != credentials.identity.public_key:
        return LinkIgnored(reason="it is for another key than ours")
    return LinkReceived(chain=chain)
