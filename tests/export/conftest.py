"""Snapshots to export, and the one Spark session that all tests of a run share."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from export_nodes import NODE, SourceNode
from s3_server import S3Server, s3_server

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
def server() -> Iterator[S3Server]:
    """An S3 server for all tests of a run; the environment says how to reach it."""
    pytest.importorskip("moto", reason="moto is not installed (extra `test`)")
    with pytest.MonkeyPatch.context() as patch, s3_server() as started:
        for name, value in started.environment.items():
            patch.setenv(name, value)
        yield started


@pytest.fixture
def bucket(server: S3Server) -> str:
    """The URL of an empty bucket."""
    name = f"tables-{uuid.uuid4().hex[:12]}"
    server.make_bucket(name)
    return f"s3://{name}"


@pytest.fixture(scope="session")
def java() -> None:
    """For tests that start Spark in a process of its own."""
    from hyperbloom.export.engines.java import find_java
    from hyperbloom.export.errors import MissingJava

    try:
        with TemporaryDirectory() as scratch:
            find_java(os.environ, Path(scratch))
    except MissingJava as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A session on two cores of this machine, whose workers reach the object store, too."""
    if find_spec("moto"):
        request.getfixturevalue("server")
    pytest.importorskip("pyspark", reason="the extra `export` is not installed")
    from hyperbloom.export.engines.spark_session import spark_session
    from hyperbloom.export.errors import MissingJava

    try:
        with spark_session("local[2]") as session:
            yield session
    except MissingJava as error:
        pytest.skip(str(error))


@pytest.fixture
def by_spark(spark: Any) -> Any:
    """The engines of an export that Spark does, in the session that all tests share."""
    from hyperbloom.export import Engines

    @contextmanager
    def give() -> Iterator[Any]:
        yield spark

    return Engines(wanted="spark", sessions=give)


@pytest.fixture(params=["local", "spark"])
def engines(request: pytest.FixtureRequest) -> Any:
    """The engines of an export: either one must do."""
    from hyperbloom.export import Engines

    if request.param == "spark":
        return request.getfixturevalue("by_spark")
    return Engines(wanted="local", processes=2)


@pytest.fixture
def no_engine() -> Any:
    """For exports that must not need one."""
    from hyperbloom.export import Engines

    def give() -> Any:
        raise AssertionError("an engine was asked for and is not needed")

    return Engines(wanted="spark", sessions=give)
