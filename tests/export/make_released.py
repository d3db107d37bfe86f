"""Makes the tables that are kept in tests/export/released: see README.md there."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from export_nodes import FEED, HOUR, MONDAY, ODD_VALUES, ORIGINS, OTHER_FEED, SourceNode
from export_nodes import random_values as some_values

from hyperbloom.export import Engines, export_snapshots
from hyperbloom.export.tables.schema import TABLES
from hyperbloom.store.objects.offers import OfferedChange, OfferedObject
from hyperbloom.store.objects.rule import OfferObjects
from hyperbloom.store.records import LinkRecord
from hyperbloom.store.tables.links import PutLinks


def fill(node: SourceNode) -> None:
    """What the first export holds."""
    small = [value for value in ODD_VALUES if len(value) < 1_000]
    node.append(some_values(20, seed=17) + small, origin=ORIGINS[1])
    node.append([b"elsewhere", b"a"], feed=OTHER_FEED)
    node.do(PutLinks(FEED, [_link(FEED, b"t" * 32, 1e15), _link(b"u" * 32, b"v" * 32, 2e9)]))
    person = OfferedObject(
        hash=-2, stamp=1, fields={"name": "Ada", "raw": b"\x00\xff"}, type_name="Person"
    )
    number = OfferedObject(hash=5, stamp=1, fields={"n": 1})
    node.do(OfferObjects((person, number), MONDAY, 1_000))


def go_on(node: SourceNode) -> None:
    """What the second one has beside it."""
    node.append([b"tomorrow", b"b"], at=MONDAY + 24 * HOUR + 1)
    change = OfferedChange(old=5, hash=6, stamp=2, fields={"n": 2})
    node.do(OfferObjects((change,), MONDAY + 9, 1_000))


def _link(issuer: bytes, trustee: bytes, expires: float) -> LinkRecord:
    return LinkRecord(
        issuer=issuer,
        trustee=trustee,
        expires=expires,
        first_seen=MONDAY,
        introduced_by=ORIGINS[0],
        raw=b"link" + issuer + trustee,
    )


def make(node: SourceNode, target: Path) -> None:
    """Two exports of a new node, of all tables."""
    for step in (fill, go_on):
        step(node)
        export_snapshots(
            [node.snapshot(step.__name__)],
            target,
            engines=Engines(wanted="local", processes=1),
            tables=tuple(TABLES),
        )


if __name__ == "__main__":
    with TemporaryDirectory() as scratch:
        source = SourceNode(Path(scratch))
        make(source, Path(sys.argv[1]))
        source.close()
