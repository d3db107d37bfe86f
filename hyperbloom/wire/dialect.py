"""Dialects: what differs between the protocol's versions, in one value.

The session asks its dialect and knows no version. A feed names its dialect in its settings; nothing
is negotiated. A further dialect is one more value here (and, where its trust links have another
form, one more LinkFormat). What an older one gives less of, it says itself (`Dialect.lacks`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from hyperbloom.keys import DRAFT_HASH_KEY, HASH_KEY, discovery_key, keyed_hash
from hyperbloom.trust import LINK_FORMAT_2, LINK_FORMAT_DRAFT, LinkFormat
from hyperbloom.wire.messages import Data, FilterOptions, Handshake, Link, Request, Sync

__all__ = ["DIALECTS", "DIALECT_1", "DIALECT_2", "DIALECT_DRAFT", "Dialect"]

_MESSAGE_IDS: Final = frozenset(
    message.message_id for message in (Handshake, Sync, FilterOptions, Data, Request, Link)
)


def _sent_then_received(sent_nonce: bytes, received_nonce: bytes) -> bytes:
    return sent_nonce + received_nonce


def _received_alone(sent_nonce: bytes, received_nonce: bytes) -> bytes:
    return received_nonce


_UNSIGNED: Final = (
    "values are not signed: on a stream that is not protected by noise, who knows the feed's key "
    "can alter them"
)
_UNENDING: Final = "trust links never expire: who was invited once may write for good"
# A signature over nothing but the other side's nonce is got from any node for the asking: open a
# connection to it with the nonce that the node to be fooled has sent.
_UNBOUND: Final = (
    "a handshake proves little: who knows the feed's key can have one node's signature made for "
    "another, and write in its name"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one version of the protocol hashes, signs, trusts, and which messages it has.

    `hash_key`: key of every keyed hash. `link_format`: form of its trust links. `data_signed`:
    whether Data carries a signature. `has_link_message`: whether Link exists; where it does not,
    its id is unknown. `join_nonces`: (nonce the signer sent, nonce it received) → what a Handshake
    signs the hash of. `carries_noise`: whether a stream may be protected by the extension `noise`,
    for which a Handshake has to prove who sent it. `lacks`: what the dialect does not protect, a
    clause each, for who runs a feed in it.
    """

    name: str
    hash_key: bytes
    link_format: LinkFormat
    data_signed: bool
    has_link_message: bool
    join_nonces: Callable[[bytes, bytes], bytes]
    carries_noise: bool
    lacks: tuple[str, ...] = ()

    def discovery_key(self, feed_key: bytes) -> bytes:
        """What Open names a feed by (32 bytes)."""
        return discovery_key(feed_key, hash_key=self.hash_key)

    def knows(self, message_id: int) -> bool:
        """Whether a message id means something; all others are skipped."""
        return message_id in _MESSAGE_IDS and (
            self.has_link_message or message_id != Link.message_id
        )

    def handshake_input(self, sent_nonce: bytes, received_nonce: bytes) -> bytes:
        """The 32 bytes that a Handshake's signature covers; both nonces as its signer sees them."""
        return keyed_hash(self.join_nonces(sent_nonce, received_nonce), key=self.hash_key)

    def data_input(self, feed_key: bytes, values: Sequence[bytes]) -> bytes:
        """The 32 bytes that a Data's signature covers (docs/protocol.md#3-data).

        Lengths of values are not covered: ["ab", "c"] gives the same as ["a", "bc"].
        """
        count = len(values).to_bytes(8, "big")
        return keyed_hash(feed_key, count, b"".join(values), key=self.hash_key)


DIALECT_2: Final = Dialect(
    name="2",
    hash_key=HASH_KEY,
    link_format=LINK_FORMAT_2,
    data_signed=True,
    has_link_message=True,
    join_nonces=_sent_then_received,
    carries_noise=True,
)
"""Protocol 2, as npm hyperbloom-protocol 2.0.3 speaks it."""

DIALECT_1: Final = replace(DIALECT_2, name="1", data_signed=False, lacks=(_UNSIGNED,))
"""Protocol 1, as npm hyperbloom-protocol 1.2.4 speaks it: protocol 2 before Data was signed."""

DIALECT_DRAFT: Final = Dialect(
    name="draft",
    hash_key=DRAFT_HASH_KEY,
    link_format=LINK_FORMAT_DRAFT,
    data_signed=False,
    has_link_message=False,
    join_nonces=_received_alone,
    carries_noise=False,
    lacks=(_UNSIGNED, _UNENDING, _UNBOUND),
)
"""The draft before protocol 1. Nobody is known to have published a node for it."""

DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {dialect.name: dialect for dialect in (DIALECT_2, DIALECT_1, DIALECT_DRAFT)}
)
"""Every dialect by the name that settings give it."""
