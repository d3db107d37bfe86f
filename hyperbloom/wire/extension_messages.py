"""Messages beyond the protocol's own, and the extension that gives each a meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from hyperbloom.wire.events import (
    DigestReceived,
    DigestRequested,
    Event,
    IdsTold,
    RenewalReceived,
    SketchReceived,
    SketchRequested,
    ValuesAskedFor,
    ValuesPulled,
)
from hyperbloom.wire.extensions.broadcast_tree import BROADCAST_TREE, ValuesPull, ValuesTold
from hyperbloom.wire.extensions.reconcile import RECONCILE, Sketch, SketchRequest, ValuesWanted
from hyperbloom.wire.extensions.renew_links import RENEW_LINKS, RenewedChain
from hyperbloom.wire.extensions.set_digest import SET_DIGEST, Digest, DigestRequest
from hyperbloom.wire.states import Input

__all__ = ["EXTENSION_MESSAGES", "ExtensionMessage", "Kind"]

ExtensionMessage: TypeAlias = (
    DigestRequest
    | Digest
    | SketchRequest
    | Sketch
    | ValuesWanted
    | ValuesTold
    | ValuesPull
    | RenewedChain
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of message: its extension, what the state table calls it, and its event.

    event: made of a body; raises RemoteProtocolError for one that breaks a rule.
    """

    extension: str
    sent: Input
    received: Input
    event: Callable[[bytes], Event]


EXTENSION_MESSAGES: Final[Mapping[int, Kind]] = MappingProxyType(
    {
        DigestRequest.message_id: Kind(
            SET_DIGEST,
            Input.SEND_DIGEST_REQUEST,
            Input.RECEIVE_DIGEST_REQUEST,
            lambda body: DigestRequested(request=DigestRequest.decode(body)),
        ),
        Digest.message_id: Kind(
            SET_DIGEST,
            Input.SEND_DIGEST,
            Input.RECEIVE_DIGEST,
            lambda body: DigestReceived(digest=Digest.decode(body)),
        ),
        SketchRequest.message_id: Kind(
            RECONCILE,
            Input.SEND_SKETCH_REQUEST,
            Input.RECEIVE_SKETCH_REQUEST,
            lambda body: SketchRequested(request=SketchRequest.decode(body)),
        ),
        Sketch.message_id: Kind(
            RECONCILE,
            Input.SEND_SKETCH,
            Input.RECEIVE_SKETCH,
            lambda body: SketchReceived(sketch=Sketch.decode(body)),
        ),
        ValuesWanted.message_id: Kind(
            RECONCILE,
            Input.SEND_VALUES_WANTED,
            Input.RECEIVE_VALUES_WANTED,
            lambda body: ValuesAskedFor(wanted=ValuesWanted.decode(body)),
        ),
        ValuesTold.message_id: Kind(
            BROADCAST_TREE,
            Input.SEND_VALUES_TOLD,
            Input.RECEIVE_VALUES_TOLD,
            lambda body: IdsTold(told=ValuesTold.decode(body)),
        ),
        ValuesPull.message_id: Kind(
            BROADCAST_TREE,
            Input.SEND_VALUES_PULL,
            Input.RECEIVE_VALUES_PULL,
            lambda body: ValuesPulled(pull=ValuesPull.decode(body)),
        ),
        RenewedChain.message_id: Kind(
            RENEW_LINKS,
            Input.SEND_RENEWED_CHAIN,
            Input.RECEIVE_RENEWED_CHAIN,
            lambda body: RenewalReceived(renewal=RenewedChain.decode(body)),
        ),
    }
)
"""Message id → its kind. To a peer that did not announce the extension, the id is unknown."""
