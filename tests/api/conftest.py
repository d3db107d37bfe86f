from __future__ import annotations

import pytest
from serving import ReactorThread, Served, ServedOverTcp


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
