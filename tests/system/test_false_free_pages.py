"""A snapshot that calls pages free which hold values: nothing may be written over them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from false_free_pages import call_pages_free
from nodes import real_nodes

BEFORE = [b"before %06d " % number + b"." * 40 for number in range(20_000)]
AFTER = [b"after %06d" % number for number in range(100_000)]


@pytest.fixture
def nodes(tmp_path: Path):
    with real_nodes(tmp_path) as made:
        yield made


def put(node, values):
    for start in range(0, len(values), 10_000):
        node.put(*values[start : start + 10_000])


@pytest.mark.timeout(600)
def test_a_node_on_a_restored_store_loses_nothing(nodes, tmp_path):
    owner = nodes.make("owner").start()
    put(owner, BEFORE)
    with owner.client() as client:
        client.snapshot(tmp_path / "taken")
    owner.stop()
    assert call_pages_free(tmp_path / "taken" / "data.mdb") > 400
    seen = owner.command("verify", str(tmp_path / "taken"), "--json")
    assert json.loads(seen.stdout)["ok"], "no record of it is wrong"
    done = owner.command("restore", str(tmp_path / "taken"), "--replace", "--json")
    assert done.returncode == 0, done.stderr
    owner.start()
    put(owner, AFTER)
    assert owner.values() == sorted(BEFORE + AFTER)
    assert owner.stop()
    found = owner.command("verify", str(owner.folder / "store"), "--json")
    assert json.loads(found.stdout)["problems"] == []
    assert found.returncode == 0
    owner.start()
    assert owner.values() == sorted(BEFORE + AFTER)
