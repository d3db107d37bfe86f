"""Trust: who may write to a feed, through whom, and until when.

A feed's owner holds its key. Anybody the owner trusts gets a trust link, a short signed statement
"this key may write until then", and may hand links on in turn. A chain of at most five links from
the feed's key to a writer's key proves the right to write (docs/protocol.md#signature-chain).
"""

from hyperbloom.trust.branch import Path, automatic_nonce, mark_of, path_of, shortened_by
from hyperbloom.trust.chain import (
    MAX_CHAIN_LINKS,
    Chain,
    ChainError,
    ChainExpired,
    ChainForged,
    ChainMalformed,
    ChainTooLong,
    owner_chain,
    verify_chain,
)
from hyperbloom.trust.format import LINK_FORMAT_2, LINK_FORMAT_DRAFT, NONCE_BYTES, LinkFormat
from hyperbloom.trust.graph import LinkGraph, Member
from hyperbloom.trust.link import LINK_VERSION, TrustLink, issue_link, parse_link

__all__ = [
    "LINK_FORMAT_2",
    "LINK_FORMAT_DRAFT",
    "LINK_VERSION",
    "MAX_CHAIN_LINKS",
    "NONCE_BYTES",
    "Chain",
    "ChainError",
    "ChainExpired",
    "ChainForged",
    "ChainMalformed",
    "ChainTooLong",
    "LinkFormat",
    "LinkGraph",
    "Member",
    "Path",
    "TrustLink",
    "automatic_nonce",
    "issue_link",
    "mark_of",
    "owner_chain",
    "parse_link",
    "path_of",
    "shortened_by",
    "verify_chain",
]
