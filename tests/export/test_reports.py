"""Coverage and provenance over several nodes, against plain Python."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict

from deltalake import DeltaTable
from export_nodes import FEED, HOUR, MONDAY, ODD_VALUES, ORIGINS, OTHER_FEED, random_values

from hyperbloom.export import export_snapshots

NODES = [bytes([n]) * 32 for n in (1, 2, 3)]
ALL = ("values", "links", "feeds", "coverage", "provenance")


def overlapping_nodes(new_node):
    """Three nodes with parts of the same values, in different orders, from different peers."""
    numbers = random.Random(8)
    values = random_values(900, seed=9) + list(ODD_VALUES)
    nodes = []
    for key in NODES:
        node = new_node(key)
        for value in numbers.sample(values, 600):
            node.append(
                [value],
                feed=numbers.choice((FEED, OTHER_FEED)),
                origin=numbers.choice(ORIGINS),
                at=MONDAY + numbers.randrange(100 * HOUR),
            )
        nodes.append(node)
    return nodes


def records(nodes):
    for key, node in zip(NODES, nodes, strict=True):
        for feed in node.store.feeds():
            for record in node.store.log_slice(feed.key, 0, limit=9_999, max_bytes=1 << 30).records:
                yield key, feed.key, record


def report(target, name):
    found = DeltaTable(str(target / name)).to_pyarrow_dataset().to_table().to_pylist()
    return [
        {k: int(v.timestamp() * 1e6) if k.endswith("_seen") else v for k, v in row.items()}
        for row in found
    ]


def test_three_overlapping_snapshots(new_node, engines, tmp_path):
    nodes = overlapping_nodes(new_node)
    target = tmp_path / "tables"
    snapshots = [node.snapshot() for node in nodes]
    export_snapshots(snapshots, target, engines=engines, tables=ALL)

    held = defaultdict(list)
    from_origin = defaultdict(list)
    for key, feed, record in records(nodes):
        held[feed, hashlib.sha256(record.value).digest()].append((key, record))
        from_origin[record.origin].append((feed, record))

    coverage = report(target, "coverage")
    assert len(coverage) == len(held)
    for row in coverage:
        holders = held[row["feed"], row["value_hash"]]
        times = [record.received_at for _, record in holders]
        assert row["nodes"] == len({key for key, _ in holders})
        assert row["size"] == len(holders[0][1].value)
        assert (row["first_seen"], row["last_seen"]) == (min(times), max(times))
    assert {row["nodes"] for row in coverage} == {1, 2, 3}

    for row in report(target, "provenance"):
        came = from_origin.pop(row["origin"])
        different = {(feed, record.value) for feed, record in came}
        times = [record.received_at for _, record in came]
        assert row["values"] == len(different)
        assert row["arrivals"] == len(came)
        assert row["bytes"] == sum(len(value) for _, value in different)
        assert row["feeds"] == len({feed for feed, _ in came})
        assert row["days"] == len({time // (24 * HOUR) for time in times})
        assert (row["first_seen"], row["last_seen"]) == (min(times), max(times))
    assert not from_origin

    again = export_snapshots(snapshots, target, engines=engines, tables=ALL)
    assert not any(table.changed for table in again.tables)
    nodes[0].append([b"one more"])
    export_snapshots(
        [nodes[0].snapshot("second")], target, engines=engines, tables=("values", "coverage")
    )
    assert len(report(target, "coverage")) == len(held) + 1
