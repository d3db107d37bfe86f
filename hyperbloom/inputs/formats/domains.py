"""Names of hosts and adblock lists: domains in the one spelling of outputs."""

from __future__ import annotations

from hyperbloom.inputs.formats.parsing import LeftOut
from hyperbloom.outputs import entries

__all__ = ["DOMAIN", "MAX_NAME", "domain"]

#: What a domain looks like in its one spelling; its length is not looked at.
DOMAIN = entries.DOMAIN
MAX_NAME = entries.MAX_NAME


def domain(name: bytes, left_out: LeftOut) -> list[bytes]:
    """The domain in a list, or an empty list: what is none is counted."""
    try:
        kind, spelled = entries.entry_of(name)
    except entries.LeftOut as reason:
        left_out[str(reason).replace(" ", "_")] += 1
        return []
    if kind != "domain":
        left_out["of_another_kind"] += 1
        return []
    return [spelled]
