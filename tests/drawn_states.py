"""The state diagrams of the docs, read back."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def diagram_in(page: str) -> list[tuple[str, str, str]]:
    """The arrows of a page's only diagram: state, target, and each of the arrow's inputs."""
    (diagram,) = re.findall(r"stateDiagram-v2\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    found = []
    for line in diagram.splitlines():
        arrow, _, inputs = line.strip().partition(" : ")
        state, target = arrow.split(" --> ")
        found += [(state, target, happened) for happened in inputs.split("<br/>")]
    return found
