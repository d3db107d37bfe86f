"""How pytest-xdist shares the tests out among its processes, and in what order.

A file goes to one process, for its tests may share what was costly to make. But there are folders
whose tests have nothing in common and wait long, and a folder that shares one Spark: starting Java
takes longer than most of its tests. What takes longest begins first, so that no process has a long
piece of work left when the others have ended.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

#: Each test goes where there is a process left: it starts nodes of its own.
APART = ("tests/attacks/", "tests/system/")
#: All go to one process: they share Spark.
TOGETHER = ("tests/export/",)
#: These begin first, in this order.
LONG = (
    "tests/demo/",
    "tests/export/",
    "tests/attacks/test_sketch_attacks.py",
    "tests/interop/",
    "tests/system/",
    "tests/attacks/",
    "tests/packaging/",
    "tests/fuzz/",
    "tests/objects/",
    "tests/replication/",
    "tests/store/",
    "tests/api/",
)


def piece_of(nodeid: str) -> str:
    """The name of the piece of work that a test belongs to."""
    if nodeid.startswith(APART):
        return nodeid
    for folder in TOGETHER:
        if nodeid.startswith(folder):
            return folder
    return nodeid.partition("::")[0]


def rank_of(nodeid: str) -> int:
    """Less for what begins earlier."""
    return next((at for at, one in enumerate(LONG) if nodeid.startswith(one)), len(LONG))


class InPieces(LoadScopeScheduling):
    """As `--dist=loadscope`, with other pieces."""

    def _split_scope(self, nodeid: str) -> str:
        return piece_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> InPieces:
    return InPieces(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank_of(item.nodeid))
