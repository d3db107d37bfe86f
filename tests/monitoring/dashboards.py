"""tap/grafana-dashboard.json as tests read it: its panels, and queries with variables put in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

DASHBOARD = Path(__file__).parents[2] / "tap" / "grafana-dashboard.json"

#: What Grafana puts in: for "All", and an interval of some scrapes.
VARIABLES = {"$instance": ".*", "$feed": ".*", "$__rate_interval": "1m", "${datasource}": "x"}


def dashboard() -> dict:
    """The whole file."""
    return json.loads(DASHBOARD.read_text())


def panels() -> list[dict]:
    """The panels that show something, without the headings of rows."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def filled(text: str) -> str:
    """A query with a value for each variable."""
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    return text


def queries() -> Iterator[tuple[str, str]]:
    """The title of a panel and one of its queries."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], filled(target["expr"])
