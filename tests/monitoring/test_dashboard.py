"""The dashboard for Grafana: it can be imported, nothing overlaps, and it asks for chosen nodes.

Its form is that of Grafana's documentation ("dashboard JSON model"); what its queries give is
tested with a Prometheus in test_real_prometheus.py.
"""

from __future__ import annotations

import re

import pytest
from dashboards import VARIABLES, dashboard, panels, queries

METRIC = re.compile(r"\b(?:hyperbloom|process)_\w+")
COLUMNS = 24


def test_it_can_be_imported():
    found = dashboard()
    assert found["id"] is None  # else Grafana takes it for one that it has
    assert found["uid"] == "hyperbloom"
    assert found["title"]
    assert found["schemaVersion"] >= 36
    assert found["time"]["from"].startswith("now-")
    assert {kind["id"] for kind in found["__requires"] if kind["type"] == "panel"} == {
        panel["type"] for panel in panels()
    }


def test_the_data_source_is_chosen_where_it_is_imported():
    variables = {one["name"]: one for one in dashboard()["templating"]["list"]}
    assert list(variables) == ["datasource", "instance", "feed"]
    assert (variables["datasource"]["type"], variables["datasource"]["query"]) == (
        "datasource",
        "prometheus",
    )
    source = {"type": "prometheus", "uid": "${datasource}"}
    for name in ("instance", "feed"):
        assert variables[name]["datasource"] == source
        assert f", {name})" in variables[name]["query"]["query"]
    for panel in panels():
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])


def test_every_panel_has_a_place_and_a_word():
    found = dashboard()["panels"]
    assert len({panel["id"] for panel in found}) == len(found)
    taken: set[tuple[int, int]] = set()
    for panel in found:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= COLUMNS
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["title"]
    for panel in panels():
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        references = [target["refId"] for target in panel["targets"]]
        assert references == sorted(set(references)) != []


def test_every_question_of_an_operator_has_a_row():
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert rows == [
        "Is all well?",
        "Is it in sync?",
        "Who is connected?",
        "What does it cost?",
        "When does what end?",
        "Is the disk filling?",
        "Do outputs, inputs, hooks and exports work?",
        "Discovery and the object pool, where they are on",
    ]


@pytest.mark.parametrize(("title", "query"), list(queries()))
def test_a_query_is_about_the_chosen_nodes(title, query):
    assert not any(variable in query for variable in VARIABLES)
    assert "$" not in query
    # Each selector follows what was chosen above the panels.
    asked = METRIC.findall(query)
    assert len(asked) == query.count('instance=~".*"') or title == "Answers"
