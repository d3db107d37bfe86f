"""Prometheus as a counterpart of these tests."""

from __future__ import annotations

import os

import pytest
from debian_packages import UnavailableError
from debian_prometheus import Programs, install

REQUIRE = "HYPERBLOOM_REQUIRE_PROMETHEUS"


@pytest.fixture(scope="session")
def programs() -> Programs:
    """Prometheus and promtool, or a skip that says why; a failure where they are required."""
    try:
        return install()
    except UnavailableError as reason:
        if os.environ.get(REQUIRE):
            pytest.fail(f"{reason}; {REQUIRE} is set")
        pytest.skip(f"Prometheus is not available: {reason}")
