"""Snapshots to export, and the one Spark session that all tests of a run share."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from export_nodes import NODE, SourceNode

collect_ignore_glob: list[str] = []
try:
    import deltalake  # noqa: F401
    import pyarrow  # noqa: F401
except ImportError:
    # test_extra.py says so.
    collect_ignore_glob = ["test_[!e]*.py", "test_export_*.py"]


@pytest.fixture
def new_node(tmp_path: Path) -> Iterator[Callable[..., SourceNode]]:
    nodes: list[SourceNode] = []

    def make(key: bytes = NODE) -> SourceNode:
        folder = tmp_path / f"node{len(nodes)}"
        folder.mkdir()
        nodes.append(SourceNode(folder, key))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def node(new_node: Callable[..., SourceNode]) -> SourceNode:
    return new_node()


@pytest.fixture(scope="session")
def java() -> None:
    """For tests that start Spark in a process of its own."""
    from hyperbloom.export.errors import MissingJava
    from hyperbloom.export.java import find_java

    try:
        with TemporaryDirectory() as scratch:
            find_java(os.environ, Path(scratch))
    except MissingJava as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session on two cores of this machine."""
    pytest.importorskip("pyspark", reason="the extra `export` is not installed")
    from hyperbloom.export.errors import MissingJava
    from hyperbloom.export.spark import spark_session

    try:
        with spark_session("local[2]") as session:
            yield session
    except MissingJava as error:
        pytest.skip(str(error))


@pytest.fixture
def sessions(spark: Any) -> Callable[[], Any]:
    """As export_snapshots asks for it."""

    @contextmanager
    def give() -> Iterator[Any]:
        yield spark

    return give


@pytest.fixture
def no_session() -> Callable[[], Any]:
    """For exports that must not need Spark."""

    def give() -> Any:
        raise AssertionError("Spark was asked for and is not needed")

    return give
