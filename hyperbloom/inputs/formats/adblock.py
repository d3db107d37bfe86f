"""`adblock`: the domains that rules of Adblock Plus, uBlock Origin or AdGuard block as a whole.

Of these rules a feed of domains can hold `||example.com^` and the plain `example.com`. Options of a
rule that leave it a rule for all of the domain are taken (what AdGuard's list compiler removes for
lists of the DNS, but `third-party`: without it a page would be blocked that the list leaves alone).
All else would mean something else without its other half, so it is left out: exceptions, paths,
wildcards, other options, and rules for what a page looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hyperbloom.inputs.formats.domains import DOMAIN, domain, domains_of_lines
from hyperbloom.inputs.formats.parsing import LeftOut

__all__ = ["names_of_rules"]

_ORDINARY = re.compile(rb"\|\|(%s)\^[ \t\r]*" % DOMAIN)
_BLOCKS_A_DOMAIN = re.compile(rb"\|\|([^\s/^*|$]+)\^(?:\$(.*))?", re.DOTALL)
_PLAIN = re.compile(rb"[^\s/^*|$=~@,]+")
_TRAILING_COMMENT = re.compile(rb"[ \t]+#[^#@?$%].*|[ \t]+#\Z", re.DOTALL)
#: `##`, `#@#`, `#?#`, `#$#`, `#%#`, and `$$` of AdGuard: what follows is about a page's elements.
_COSMETIC = re.compile(rb"#@?[?$%]{0,2}#|\$@?\$")
_HARMLESS_OPTIONS = frozenset((b"important", b"all", b"document", b"doc", b"network", b"popup"))


def names_of_rules(chunks: Iterable[bytes], left_out: LeftOut) -> Iterator[list[bytes]]:
    """The domains of a list's rules; the other rules are counted."""
    return domains_of_lines(chunks, left_out, ordinary=_ORDINARY, other=_names)


def _is_comment(rule: bytes) -> bool:
    if rule.startswith(b"["):
        return rule.endswith(b"]")
    return rule.startswith(b"!") or (rule.startswith(b"#") and not _COSMETIC.match(rule))


def _names(line: bytes, left_out: LeftOut) -> list[bytes]:
    rule = line.strip()
    if not rule or _is_comment(rule):
        return []
    if rule.startswith(b"@@"):
        left_out["exception"] += 1
    elif _COSMETIC.search(rule):
        left_out["cosmetic"] += 1
    elif blocks := _BLOCKS_A_DOMAIN.fullmatch(rule):
        if blocks[2] is None or _HARMLESS_OPTIONS.issuperset(blocks[2].split(b",")):
            return domain(blocks[1], left_out)
        left_out["option"] += 1
    elif plain := _PLAIN.fullmatch(_TRAILING_COMMENT.sub(b"", rule)):
        return domain(plain[0], left_out)
    else:
        left_out["pattern"] += 1
    return []
