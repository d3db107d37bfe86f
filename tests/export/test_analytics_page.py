"""docs/analytics.md: its questions are asked as they are written there, and answered rightly."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
from export_nodes import FEED, HOUR, MONDAY, ORIGINS, OTHER_FEED, random_values

from hyperbloom.export import export_snapshots
from hyperbloom.export.tables.schema import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "analytics.md"
DAY = 24 * HOUR
ONE, TWO = b"\x01" * 32, b"\x02" * 32


def blocks(language):
    """The page's examples in a language, by the heading above each."""
    found = {}
    for section in re.split(r"^#+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE):
        code = re.findall(rf"^```{language}\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
        if code:
            found[section.splitlines()[0]] = "".join(code)
    return found


@pytest.fixture
def nodes(new_node):
    """Two nodes with a week of values, and older ones."""
    one, two = new_node(ONE), new_node(TWO)
    values = random_values(300, seed=11, longest=30)
    for number, value in enumerate(values):
        origin = ORIGINS[number % 5 % 2]
        at = MONDAY + (number % 14 - 7) * DAY + number
        feed = FEED if number % 3 else OTHER_FEED
        one.append([value], feed=feed, origin=origin, at=at)
        if number % 5:
            two.append([value], feed=feed, origin=origin, at=at + HOUR)
    return one, two


@pytest.fixture
def asked(spark, engines, nodes, tmp_path):
    """Runs an example with the names that the page's first one makes."""
    export_snapshots([node.snapshot() for node in nodes], tmp_path / "tables", engines=engines)
    examples = blocks("python")

    def ask(heading):
        from hyperbloom.export import read

        names = {
            "spark": spark,
            "read": read,
            "values": read(spark, tmp_path / "tables" / "values"),
            "feeds": read(spark, tmp_path / "tables" / "feeds"),
            "tables": str(tmp_path / "tables"),
            "week_start": "2026-11-16",
            "here": ONE.hex(),
            "there": TWO.hex(),
        }
        exec(compile(examples[heading], f"{PAGE.name}: {heading}", "exec"), names)
        return names

    return ask


def records(node, feeds=(FEED, OTHER_FEED)):
    for feed in feeds:
        for record in node.store.log_slice(feed, 0, limit=9_999, max_bytes=1 << 30).records:
            yield feed, record


def test_the_first_example_opens_the_tables(asked):
    names = asked("Reading the tables")
    assert names["values"].count() == 540


def test_what_arrived_from_whom_this_week(asked, nodes):
    rows = asked("What arrived from whom this week?")["arrivals"].collect()
    wanted = Counter(
        (record.received_at // DAY, record.origin, feed)
        for feed, record in records(nodes[0])
        if MONDAY <= record.received_at < MONDAY + 7 * DAY
    )
    assert len(wanted) > 20
    found = {
        ((row.date.toordinal() - 719_163), bytes(row.origin), bytes(row.feed)): row["count"]
        for row in rows
    }
    assert found == wanted


def test_what_is_on_one_node_and_missing_on_another(asked, nodes):
    rows = asked("What is on one node and missing on another?")["missing"].collect()
    there = {(feed, record.value) for feed, record in records(nodes[1])}
    wanted = {(f, r.value) for f, r in records(nodes[0]) if (f, r.value) not in there}
    assert len(wanted) == 60
    assert {(bytes(row.feed), bytes(row.value)) for row in rows} == wanted


def test_how_each_feed_grows(asked, nodes):
    rows = asked("How does each feed grow?")["growth"].collect()
    for feed in (FEED, OTHER_FEED):
        days = Counter(record.received_at // DAY for _, record in records(nodes[0], (feed,)))
        total = 0
        wanted = []
        for day in sorted(days):
            total += days[day]
            wanted.append((days[day], total))
        found = sorted((r.date, r.new, r.total) for r in rows if bytes(r.feed) == feed)
        assert [row[1:] for row in found] == wanted


def test_every_table_and_column_is_described():
    text = PAGE.read_text(encoding="utf-8")
    for table in TABLES.values():
        section = text.partition(f"### {table.name}\n")[2].partition("\n#")[0]
        for field in table.schema:
            line = f"| `{field.name}` | {kind(field)} | {field.metadata[b'comment'].decode()} |"
            assert line in section, f"{table.name}: {line}"


def kind(field):
    return str(field.type).partition("[")[0].replace("date32", "date").replace("int", "integer ")
