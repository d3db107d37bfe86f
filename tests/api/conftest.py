from __future__ import annotations

import pytest
from serving import ReactorThread, Served


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
