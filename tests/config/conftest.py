from __future__ import annotations

from pathlib import Path

import pytest

from hyperbloom.keys import create_key_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with a node's key, in which nothing is wrong."""
    made = tmp_path / "node"
    made.mkdir(mode=0o700)
    create_key_file(made / "identity.key", bytes(range(32)))
    return made
