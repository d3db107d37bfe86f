from __future__ import annotations

import os

import pytest
from sim import Network

from hyperbloom.replication.sync.sketch_exchange import SketchExchange


@pytest.fixture
def network(tmp_path, request):
    """A network in memory; the seed comes from HYPERBLOOM_SEED, and is printed on failure."""
    seed = int(os.environ.get("HYPERBLOOM_SEED", "1"))
    print(f"seed {seed} (set HYPERBLOOM_SEED to try another)")
    one = Network(tmp_path, seed=seed)
    yield one
    one.close()


@pytest.fixture
def deaf(monkeypatch):
    """Has a node do nothing, or something else, when it is asked for symbols."""
    take = SketchExchange.take_request

    def deafen(node, instead=lambda peer, request: None):
        def taken(exchange, request):
            is_deaf = exchange._peer.context is node.context
            (instead if is_deaf else take)(exchange._peer if is_deaf else exchange, request)

        monkeypatch.setattr(SketchExchange, "take_request", taken)

    return deafen
