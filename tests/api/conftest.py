from __future__ import annotations

import os
import time
from pathlib import Path

import npm_packages
import pytest
from chromium import Chromium
from debian_chromium import browser
from debian_packages import UnavailableError
from serving import ReactorThread, Served, ServedOverTcp

from hyperbloom.objects.classes.types import Types
from hyperbloom.objects.pool import ObjectPool
from hyperbloom.store import Store, WriterInline

REQUIRE = "HYPERBLOOM_REQUIRE_BROWSER"
"""Set (by .ci/run) where a missing browser is a failure and not a skip."""


@pytest.fixture(scope="session")
def chromium():
    """A browser, or a skip that says why there is none; a failure where it is required."""
    try:
        command = browser()
    except UnavailableError as reason:
        if os.environ.get(REQUIRE):
            pytest.fail(f"{reason}; {REQUIRE} is set", pytrace=False)
        pytest.skip(f"no browser is available: {reason}")
    made = Chromium(command)
    yield made
    made.close()


@pytest.fixture(scope="session")
def axe():
    """The program of axe-core, or a skip that says why it is not here."""
    try:
        modules = npm_packages.install(Path(__file__).with_name("axe"))
    except npm_packages.UnavailableError as reason:
        if os.environ.get(REQUIRE):
            pytest.fail(f"{reason}; {REQUIRE} is set", pytrace=False)
        pytest.skip(f"axe-core is not available: {reason}")
    return (modules / "axe-core" / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def reactor_thread():
    thread = ReactorThread()
    yield thread
    thread.stop()


@pytest.fixture
def served(reactor_thread):
    """A fake node behind a real control socket."""
    one = Served(reactor_thread)
    yield one
    one.close()


@pytest.fixture
def over_tcp(reactor_thread):
    """The same, behind a TCP port with a token, too."""
    one = ServedOverTcp(reactor_thread)
    yield one
    one.close()


class PoolService:
    """What the API needs of the pool's service, around a real pool."""

    def __init__(self, pool):
        self.pool = pool

    def status(self):
        return self

    def as_json(self):
        return {"count": self.pool.figures().count, "bytes": 7, "peers": [], "clashes": 2}


@pytest.fixture
def pooled(reactor_thread, tmp_path):
    store = Store.open(tmp_path / "store", durable=False)
    pool = ObjectPool(
        store,
        WriterInline(store),
        types=Types(),
        now=time.time,
        clock=reactor_thread.reactor,
        most=2_000,
    )
    served = Served(reactor_thread, objects=PoolService(pool))
    served.pool = pool
    yield served
    served.close()
    store.close()
