"""What tests of several parts share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from tls_servers import Authority

pytest_plugins = ["sharing_out"]

# A busy machine makes an example slow; it does not make it wrong.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")

# Spark's Java lives for seconds here: the code that the slow compiler would make pays for itself
# later, and several threads that collect garbage only take turns.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
for options in ("SPARK_LAUNCHER_OPTS", "SPARK_SUBMIT_OPTS"):
    os.environ.setdefault(options, SHORT_LIVED)

VECTORS = Path(__file__).parent / "vectors"


@pytest.fixture(scope="session")
def hyperbloom_vectors() -> dict[str, Any]:
    """Bytes recorded from the npm peer; see vectors/README.md."""
    vectors: dict[str, Any] = json.loads((VECTORS / "hyperbloom-2.json").read_text())
    return vectors


_NOISE: list[dict[str, Any]] = json.loads((VECTORS / "noise.json").read_text())["vectors"]


@pytest.fixture(params=_NOISE, ids=lambda it: f"{it['from']}-{it['protocol_name'].split('_')[1]}")
def noise_vector(request: pytest.FixtureRequest) -> dict[str, Any]:
    """One of the published vectors of Noise; see vectors/README.md."""
    vector: dict[str, Any] = request.param
    return vector


@pytest.fixture(scope="session")
def noise_vectors() -> list[dict[str, Any]]:
    """All of them."""
    return _NOISE


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A CA of the tests' own."""
    return Authority.make(tmp_path_factory.mktemp("ca"))


@pytest.fixture
def trust(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has https clients trust that CA alone, and ask no proxy."""
    authority.be_trusted(monkeypatch)


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder
