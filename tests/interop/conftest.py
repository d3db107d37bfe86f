"""The npm reference for every test of this folder, or a skip that names what is lacking."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import npm_peer
import pytest

REQUIRE = "HYPERBLOOM_REQUIRE_NPM"
"""Set (by .ci/run) where a missing reference is a failure and not a skip."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def npm_modules() -> Path:
    """The folder of the installed npm packages."""
    try:
        return npm_peer.install()
    except npm_peer.UnavailableError as error:
        if os.environ.get(REQUIRE):
            pytest.fail(f"the npm reference is required here: {error}", pytrace=False)
        pytest.skip(f"the npm reference cannot run here: {error}")


@pytest.fixture
def npm(npm_modules: Path) -> Iterator[Callable[[], npm_peer.NpmPeer]]:
    """Starts processes of the reference; all are ended with the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(npm_peer.NpmPeer(npm_modules))
