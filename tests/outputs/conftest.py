"""The tools that read the formats, as counterparts of these tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import pytest
from debian_packages import UnavailableError
from name_server import name_server
from output_tools import OutputTools

from hyperbloom.outputs import FORMATS, Allowed, Counts, Rendering

REQUIRE = "HYPERBLOOM_REQUIRE_OUTPUT_TOOLS"


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> OutputTools:
    """The tools, or a skip that says why; a failure where they are required."""
    try:
        return OutputTools(tmp_path_factory.mktemp("tools"))
    except UnavailableError as reason:
        if os.environ.get(REQUIRE):
            pytest.fail(f"{reason}; {REQUIRE} is set")
        pytest.skip(f"the tools that read the formats are not available: {reason}")


@pytest.fixture(scope="session")
def upstream() -> Iterator[int]:
    """The port of a name server that has an address for every name."""
    with name_server() as port:
        yield port


@pytest.fixture(scope="session")
def in_format() -> Callable[..., tuple[bytes, Counts]]:
    """A function that brings values into a format: the file, and what it left out."""

    def render(
        name: str, values: Iterable[bytes], *, allow: Iterable[bytes] = (), step: int = 10_000
    ) -> tuple[bytes, Counts]:
        every, counts = list(values), Counts()
        slices = (every[at : at + step] for at in range(0, len(every), step))
        rendering = Rendering(allowed=Allowed(allow), serial=7)
        return b"".join(FORMATS[name].file(slices, rendering, counts)), counts

    return render
