from __future__ import annotations

import pytest
from nodes import real_nodes


@pytest.fixture
def nodes(tmp_path):
    with real_nodes(tmp_path) as made:
        yield made
