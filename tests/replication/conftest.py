from __future__ import annotations

import os

import pytest
from sim import Network


@pytest.fixture
def network(tmp_path, request):
    """A network in memory; the seed comes from HYPERBLOOM_SEED, and is printed on failure."""
    seed = int(os.environ.get("HYPERBLOOM_SEED", "1"))
    print(f"seed {seed} (set HYPERBLOOM_SEED to try another)")
    one = Network(tmp_path, seed=seed)
    yield one
    one.close()
