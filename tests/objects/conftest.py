from __future__ import annotations

import os

import pytest
from pool_network import PoolNet


@pytest.fixture
def net(tmp_path):
    """Pools in memory; the seed comes from HYPERBLOOM_SEED, and is printed on failure."""
    seed = int(os.environ.get("HYPERBLOOM_SEED", "1"))
    print(f"seed {seed} (set HYPERBLOOM_SEED to try another)")
    one = PoolNet(tmp_path, seed=seed)
    yield one
    one.close()
