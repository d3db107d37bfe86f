"""Who we are to a feed, and the signatures we make as that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hyperbloom.keys import Identity
from hyperbloom.trust import Chain
from hyperbloom.wire.dialect import DIALECT_2, Dialect
from hyperbloom.wire.errors import LocalProtocolError
from hyperbloom.wire.framing import encode_frame
from hyperbloom.wire.messages import Data
from hyperbloom.wire.packing import pack_values

__all__ = ["Credentials", "check_chain", "sign_data", "signed_frames"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who we are to a feed: its key (32 bytes), our identity, and the chain that leads to it.

    LocalProtocolError when the chain belongs to another feed or another key.
    """

    feed_key: bytes
    identity: Identity
    chain: Chain
    dialect: Dialect = DIALECT_2

    def __post_init__(self) -> None:
        check_chain(self.chain, self.feed_key, self.identity)

    @property
    def discovery_key(self) -> bytes:
        """What Open names the feed by."""
        return self.dialect.discovery_key(self.feed_key)


def sign_data(credentials: Credentials, values: Sequence[bytes]) -> Data:
    """A Data of these values, signed as the dialect asks. It suits every peer of the feed.

    LocalProtocolError as Data raises it.
    """
    signature = None
    if credentials.dialect.data_signed:
        covered = credentials.dialect.data_input(credentials.feed_key, values)
        signature = credentials.identity.sign(covered)
    return Data(values=tuple(values), signature=signature)


def signed_frames(credentials: Credentials, values: Sequence[bytes]) -> list[bytes]:
    """The values as signed Data in as many frames as they need, in the clear.

    They suit every peer of the feed (`Session.send_encoded_data`). LocalProtocolError as
    `pack_values` raises it.
    """
    return [
        encode_frame(Data.message_id, sign_data(credentials, part).encode())
        for part in pack_values(values)
    ]


def check_chain(chain: Chain, feed_key: bytes, identity: Identity) -> None:
    """LocalProtocolError when a chain does not lead from this feed to this identity."""
    if chain.feed_key != feed_key:
        raise LocalProtocolError("the chain is of another feed")
    if chain.holder != identity.public_key:
        raise LocalProtocolError("the chain leads to another key than ours")
