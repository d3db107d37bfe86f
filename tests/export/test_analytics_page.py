"""docs/analytics.md: each of its blocks is run as it stands there, in one shell and one Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from export_nodes import FEED, HOUR, ORIGINS, OTHER_FEED, SourceNode, random_values

from hyperbloom.export import Engines, export_snapshots
from hyperbloom.export.tables.schema import TABLES

PAGE = Path(__file__).parents[2] / "docs" / "analytics.md"
DAY = 24 * HOUR
ONE, TWO = b"\x01" * 32, b"\x02" * 32
#: Runs blocks of Python one after the other, as somebody would type them, and says what they found.
PROMPT = """
import json, sys
names = {"__name__": "__main__"}
for number, block in enumerate(json.load(sys.stdin)):
    exec(compile(block, f"block {number}", "exec"), names)
found = {name: [{k: v.hex() if isinstance(v, (bytes, bytearray)) else str(v)
                 for k, v in row.asDict().items()} for row in names[name].collect()]
         for name in ("values", "arrivals", "missing", "growth", "rows", "followed")}
print("found", json.dumps({**found, "week_start": str(names["week_start"])}))
"""


def blocks():
    """The page's blocks, as (language, text), in their order."""
    text = PAGE.read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def records(node, feeds=(FEED, OTHER_FEED)):
    for feed in feeds:
        for record in node.store.log_slice(feed, 0, limit=9_999, max_bytes=1 << 30).records:
            yield feed, record


def fill(one, two):
    """Two nodes with a week of values up to today, and older ones."""
    today = int(time.time() * 1_000_000) // DAY * DAY
    for number, value in enumerate(random_values(300, seed=11, longest=30)):
        at = today + (number % 14 - 13) * DAY + number
        feed = FEED if number % 3 else OTHER_FEED
        one.append([value], feed=feed, origin=ORIGINS[number % 5 % 2], at=at)
        if number % 5:
            two.append([value], feed=feed, origin=ORIGINS[number % 5 % 2], at=at + 1_000)


class Typed:
    """What came of typing the page: the nodes' records, and the answers of Python's blocks."""

    def __init__(self, folder, server):
        self.folder = folder
        self._environment = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "HYPERBLOOM_CONFIG": str(folder / "node" / "hyperbloom.toml"),
            # The extras are installed here; what a block would install is only looked at.
            "PIP_DRY_RUN": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }
        server.make_bucket("my-bucket")
        self.shell("hyperbloom init node\n")
        one = SourceNode(folder / "node", ONE)
        (folder / "other").mkdir()
        two = SourceNode(folder / "other", TWO)
        fill(one, two)
        self.here, self.there = list(records(one)), list(records(two))
        self.growth = {feed: list(records(one, (feed,))) for feed in (FEED, OTHER_FEED)}
        other = two.snapshot()
        one.close()
        two.close()
        for language, text in blocks():
            if language == "sh":
                self.shell(text)
        export_snapshots([other], folder / "tables", engines=Engines(wanted="local"))
        done = self._run(
            [sys.executable, "-c", PROMPT],
            json.dumps([text for language, text in blocks() if language == "python"]),
        )
        self.found = json.loads(done.partition("found ")[2])

    def shell(self, text):
        """Type a block into a shell."""
        self._run(["bash", "-euo", "pipefail", "-c", text], "")

    def _run(self, command, text):
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            input=text,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def typed(java, server, tmp_path_factory):
    return Typed(tmp_path_factory.mktemp("page"), server)


def test_every_block_is_of_a_kind_that_is_run():
    text = PAGE.read_text(encoding="utf-8")
    assert {language for language, _ in blocks()} == {"sh", "python"}
    assert len(blocks()) * 2 == len(re.findall(r"^```", text, re.MULTILINE))
    # Not behind a list's item, whose further lines are set in.
    assert re.findall(r"\n\n {4}(?! )[^\n]+", text) == []


def test_the_tables_are_opened(typed):
    assert len(typed.found["values"]) == 540


def day_of(moment):
    return datetime.fromtimestamp(moment / 1_000_000, UTC).date()


def test_what_arrived_from_whom_this_week(typed):
    start = date.fromisoformat(typed.found["week_start"])
    wanted = Counter(
        (str(day_of(record.received_at)), record.origin.hex(), feed.hex())
        for feed, record in typed.here
        if 0 <= (day_of(record.received_at) - start).days < 7
    )
    assert len(wanted) > 20
    rows = typed.found["arrivals"]
    assert {(r["date"], r["origin"], r["feed"]): int(r["count"]) for r in rows} == wanted


def test_what_is_on_one_node_and_missing_on_another(typed):
    there = {(feed, record.value) for feed, record in typed.there}
    wanted = {(f.hex(), r.value.hex()) for f, r in typed.here if (f, r.value) not in there}
    assert len(wanted) == 60
    assert {(row["feed"], row["value"]) for row in typed.found["missing"]} == wanted


def test_how_each_feed_grows(typed):
    for feed, found in typed.growth.items():
        days = Counter(str(day_of(record.received_at)) for _, record in found)
        total = 0
        wanted = []
        for day in sorted(days):
            total += days[day]
            wanted.append((day, str(days[day]), str(total)))
        rows = [row for row in typed.found["growth"] if row["feed"] == feed.hex()]
        assert sorted((row["date"], row["new"], row["total"]) for row in rows) == wanted


def test_a_snapshot_without_exporting_it(typed):
    assert typed.found["rows"]
    assert {row["node"] for row in typed.found["rows"]} == {ONE.hex()}
    assert len({row["feed"] for row in typed.found["rows"]}) == 1
    assert min(int(row["seq"]) for row in typed.found["rows"]) == 101


def test_following_a_node(typed):
    wanted = sorted((feed.hex(), record.seq, record.value.hex()) for feed, record in typed.here)
    found = ((row["feed"], int(row["seq"]), row["value"]) for row in typed.found["followed"])
    assert sorted(found) == wanted


def test_every_table_and_column_is_described():
    text = PAGE.read_text(encoding="utf-8")
    for table in TABLES.values():
        section = text.partition(f"### {table.name}\n")[2].partition("\n#")[0]
        for field in table.schema:
            line = f"| `{field.name}` | {kind(field)} | {field.metadata[b'comment'].decode()} |"
            assert line in section, f"{table.name}: {line}"


def kind(field):
    return str(field.type).partition("[")[0].replace("date32", "date").replace("int", "integer ")
