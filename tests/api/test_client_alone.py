"""A program that asks a node loads the client alone: no reactor, no store, nothing of the node."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

#: What the node is made of, and what only it needs.
NODES_OWN = (
    "bloom", "config", "connections", "discovery", "keys", "replication", "service", "store",
    "trust", "wire", "api.endpoints", "api.http", "api.monitoring", "api.routes", "api.service",
    "objects.peers", "objects.pool", "objects.service",
)  # fmt: skip
FOREIGN = ("twisted", "zope", "lmdb", "nacl", "numpy", "msgpack", "prometheus_client")


def loaded(module: str) -> set[str]:
    """Every module that a fresh interpreter has after the import."""
    program = f"import sys, json, {module}; print(json.dumps(sorted(sys.modules)))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    return set(json.loads(run.stdout))


@pytest.mark.parametrize("name", ["client", "client.remote_pool"])
def test_the_client_loads_nothing_of_the_node(name):
    found = loaded(f"hyperbloom.{name}")
    assert f"hyperbloom.{name}" in found
    assert not found & {f"hyperbloom.{part}" for part in NODES_OWN}
    assert not found & set(FOREIGN)


def test_the_shapes_of_bodies_and_answers_load_nothing_else():
    found = loaded("hyperbloom.api.schemas.bodies, hyperbloom.api.schemas.answers")
    found = {name for name in found if name.startswith("hyperbloom.")}
    assert found == {
        "hyperbloom.api", "hyperbloom.api.limits", "hyperbloom.api.schemas",
        "hyperbloom.api.schemas.answers", "hyperbloom.api.schemas.bodies",
        "hyperbloom.api.schemas.scalars", "hyperbloom.feed_words",
    }  # fmt: skip


def test_the_node_is_found_where_it_is_loaded():
    """The names above are those of modules that there are."""
    found = loaded("hyperbloom.service.node_service")
    assert {f"hyperbloom.{part}" for part in NODES_OWN} <= found
    assert set(FOREIGN) - found == set()
