"""Invitations: the line that people paste, with its checksum wrong or right."""

from __future__ import annotations

import base64

from choices import Choices

from hyperbloom.invitation import (
    CHECKSUM_BYTES,
    INVITATION_PREFIX,
    Invitation,
    InvitationError,
    decode_invitation,
    encode_invitation,
)
from hyperbloom.keys import keyed_hash

MAX_BYTES = 10_000
RUNS = 100


def fuzz(data: bytes) -> bool:
    """A line as text, or a body that is given its checksum and its letters here."""
    choices = Choices(data)
    if choices.one_of((False, True)):
        body = choices.rest()
        sealed = body + keyed_hash(body)[:CHECKSUM_BYTES]
        line = INVITATION_PREFIX + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode()
    else:
        line = choices.rest().decode("utf-8", "surrogateescape")
    try:
        invitation = decode_invitation(line)
    except InvitationError:
        return False
    assert decode_invitation(encode_invitation(invitation)) == invitation
    return True


def seeds() -> dict[str, bytes]:
    """Invitations as text and as a body."""
    full = Invitation(
        feed_key=bytes(range(32)), links=(b"l" * 137, b"m" * 137), addresses=("192.0.2.2:4365",)
    )
    bare = Invitation(feed_key=bytes(32), links=())
    found = {}
    for name, invitation in (("full", full), ("bare", bare)):
        line = encode_invitation(invitation)
        encoded = line.removeprefix(INVITATION_PREFIX)
        sealed = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        found[f"{name}-line"] = b"\x00" + line.encode()
        found[f"{name}-body"] = b"\x01" + sealed[:-CHECKSUM_BYTES]
    found["wrapped"] = b"\x00" + b"\n".join(
        line[at : at + 60].encode()
        for line in [encode_invitation(full)]
        for at in range(0, 999, 60)
    )
    return found
