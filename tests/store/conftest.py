"""A store to test with, and a way to do one operation and have its result."""

import gc
import os

import pytest

from hyperbloom.store import PutFeed, Store, WriterInline

FEED = b"f" * 32


@pytest.fixture
def feed() -> bytes:
    return FEED


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "store", durable=False)
    yield opened
    opened.close()


@pytest.fixture
def run(store):
    """Does one operation; returns its result or raises its exception."""
    writer = WriterInline(store)

    def run_operation(operation):
        results = []
        writer.submit(operation, results.append)
        (result,) = results
        if isinstance(result, BaseException):
            raise result
        return result

    run_operation(PutFeed(FEED, {}))
    return run_operation


@pytest.fixture
def open_files():
    """Counts the files that this process has open, from now on."""
    gc.collect()  # what earlier tests left is closed now and not in between
    return lambda: len(os.listdir("/proc/self/fd"))
