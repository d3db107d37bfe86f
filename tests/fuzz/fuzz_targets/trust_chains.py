"""Trust links and chains in both formats, and the graph that every chain seen goes into."""

from __future__ import annotations

import struct

from choices import Choices, piece
from vectors import vectors

from hyperbloom.keys import Identity, keyed_hash
from hyperbloom.trust import (
    LINK_FORMAT_2,
    LINK_FORMAT_DRAFT,
    MAX_CHAIN_LINKS,
    ChainError,
    LinkGraph,
    parse_link,
    verify_chain,
)

MAX_BYTES = 2_048
RUNS = 85

NOW = 1_700_000_000.0
_IDENTITIES = [Identity(bytes([number]) * 32) for number in range(1, 9)]
_FORMATS = (LINK_FORMAT_2, LINK_FORMAT_DRAFT)


def fuzz(data: bytes) -> bool:
    """A chain: each link as it came, or signed here by one of eight keys as the input says."""
    choices = Choices(data)
    form = choices.one_of(_FORMATS)
    now = choices.one_of((NOW, 0.0, 4e9, -1e308, float("nan"), float("inf")))
    leeway = choices.one_of((0.0, 60.0))
    raw = []
    for part in choices.pieces(MAX_CHAIN_LINKS + 2):
        if part[:1] == b"\x00" and len(part) > 1:
            issuer = _IDENTITIES[part[1] % len(_IDENTITIES)]
            signed = part[2:]
            raw.append(signed + issuer.sign(keyed_hash(signed, key=form.hash_key)))
        else:
            raw.append(part[1:])
    for link in raw:
        try:
            parsed = parse_link(link, form)
        except ValueError:
            continue
        assert parsed.to_bytes() == link
    try:
        chain = verify_chain(_IDENTITIES[0].public_key, raw, now=now, leeway=leeway, format=form)
    except ChainError:
        return False
    assert chain.to_wire() == tuple(raw)
    assert len(chain) <= MAX_CHAIN_LINKS
    graph = LinkGraph(_IDENTITIES[0].public_key, form)
    for issuer, link in chain.issuers():
        graph.add(issuer, link)
    graph.shortest_chain(chain.holder, now=now)
    return True


def _signed(form: object, issuer: int, trustee: int, expires: float) -> bytes:
    head = struct.pack(">B32s", 1, _IDENTITIES[trustee].public_key)
    if form is LINK_FORMAT_2:
        head += struct.pack(">d", expires)
    return piece(bytes([0, issuer]) + head + bytes([trustee]) * 32)


def seeds() -> dict[str, bytes]:
    """Chains of both formats, and the recorded one."""
    recorded = vectors("hyperbloom-2")["chain"]["links"]
    found = {
        "recorded": bytes(3)
        + b"".join(piece(b"\x01" + bytes.fromhex(it["raw"])) for it in recorded)
    }
    for number, form in enumerate(_FORMATS):
        links = [_signed(form, issuer, issuer + 1, NOW + 60) for issuer in range(3)]
        found[f"signed-{form.name}"] = bytes([number, 0, 0]) + b"".join(links)
        found[f"owner-{form.name}"] = bytes([number, 0, 0])
    return found
