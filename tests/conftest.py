"""What tests of several parts share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# A busy machine makes an example slow; it does not make it wrong.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def hyperbloom_vectors() -> dict[str, Any]:
    """Bytes recorded from the npm peer; see vectors/README.md."""
    vectors: dict[str, Any] = json.loads((VECTORS / "hyperbloom-2.json").read_text())
    return vectors
