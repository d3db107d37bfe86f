"""`log_format = "json"`: each line of a node's log is one JSON object, whatever is in it."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, real_nodes, wait_until
from twisted.logger import Logger, LogLevel

from hyperbloom.config import ConfigError, parse_config
from hyperbloom.process.event_fields import FIELD_CHARACTERS
from hyperbloom.process.json_log import json_observer
from hyperbloom.process.logs import log_observer

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
LEVELS = {level.name for level in LogLevel.iterconstants()}
#: twistd with a fault of its own making: its traceback comes while the node runs.
FAULTY = """
from twisted.internet import reactor
def fault():
    raise ValueError("two\\nlines")
reactor.callWhenRunning(fault)
from twisted.scripts.twistd import run
run()
"""


def lines_of(text: str) -> list[dict]:
    """Every line as an object with what each of them has; fails on any other line."""
    found = [json.loads(line) for line in text.splitlines()]
    for one in found:
        assert MOMENT.fullmatch(one["timestamp"]), one
        assert one["level"] in LEVELS, one
        assert isinstance(one["logger"], str), one
        assert isinstance(one["message"], str), one
    return found


def logged(write) -> list[dict]:
    stream = io.StringIO()
    write(Logger(namespace="test.part", observer=json_observer(stream)))
    return lines_of(stream.getvalue())


def test_an_event_is_one_object_with_its_fields():
    (one,) = logged(lambda log: log.warn("{peer} sent {count}", peer="127.0.0.1:1", count=3))
    assert one.pop("timestamp").startswith("20")
    assert one == {
        "level": "warn",
        "logger": "test.part",
        "message": "127.0.0.1:1 sent 3",
        "peer": "127.0.0.1:1",
        "count": 3,
    }


def test_what_a_field_holds_cannot_break_the_line():
    def write(log):
        log.info("a\nb {text}", text='"\\\n\r\t\0 \u2028 ü \udcff', part=math.nan, more=-math.inf)
        log.info("last")

    first, last = logged(write)
    assert first["message"].startswith("a\nb ")
    assert first["text"] == '"\\\n\r\t\0 \u2028 ü \\udcff'
    assert (first["part"], first["more"]) == ("nan", "-inf")
    assert last["message"] == "last"


def test_no_field_takes_the_place_of_what_every_line_has():
    (one,) = logged(lambda log: log.info("true", timestamp=1, logger=2, exception=3))
    assert (one["logger"], one["message"]) == ("test.part", "true")
    assert "exception" not in one


def test_what_is_no_text_and_no_number_stays_out():
    secret = b"bytes that nobody is to read"
    (one,) = logged(
        lambda log: log.info(
            "x", value=secret, many=[secret], long="y" * (FIELD_CHARACTERS + 1), none=None
        )
    )
    assert set(one) == {"timestamp", "level", "logger", "message"}


def test_a_traceback_is_in_the_line_of_its_event():
    def write(log):
        try:
            raise KeyError("what\nis missing")
        except KeyError:
            log.failure("It went wrong with {what}", what="this")

    (one,) = logged(write)
    assert (one["level"], one["message"]) == ("critical", "It went wrong with this")
    assert one["exception"].startswith("Traceback")
    assert "in write" in one["exception"]
    assert "KeyError" in one["exception"].splitlines()[-1]


def test_a_file_is_turned_as_with_text(tmp_path: Path):
    path = tmp_path / "node.log"
    observer = log_observer("info", str(path), files=2, file_bytes=10_000, as_json=True)
    log = Logger(observer=observer, namespace="test")
    for number in range(200):
        log.info("line {number}", number=number)
        log.debug("not told")
    numbers = [
        one["number"]
        for name in ("node.log.1", "node.log")
        for one in lines_of((tmp_path / name).read_text())
    ]
    assert numbers[-1] == 199
    assert numbers == list(range(numbers[0], 200))


@pytest.mark.parametrize("value", ['"JSON"', '"logfmt"', "1"])
def test_what_is_no_format_is_refused(tmp_path: Path, value: str):
    with pytest.raises(ConfigError, match="log_format"):
        parse_config(f"[node]\nlog_format = {value}\n", path=tmp_path / "hyperbloom.toml")


def test_a_real_node_writes_nothing_else(tmp_path: Path):
    with real_nodes(tmp_path) as nodes:
        node = started_with_a_fault(nodes)
        node.put(b"one", b"two")
        with node.client() as client:
            client.reload()
        stopped = node.stop()
    found = lines_of(node.log_path.read_text())
    assert stopped
    messages = [one["message"] for one in found]
    assert any(text.startswith("The node serves its feeds (1) on") for text in messages)
    assert any(text.startswith("Stopped: everything") for text in messages)
    (serves,) = [one for one in found if one["message"].startswith("The node serves")]
    assert (serves["logger"], serves["feeds"]) == ("hyperbloom.service.node_service", 1)
    (fault,) = [one for one in found if "exception" in one]
    assert "ValueError: two\nlines" in fault["exception"]
    assert "in fault" in fault["exception"]


def started_with_a_fault(nodes: Nodes) -> RealNode:
    node = nodes.make("node", feed="words", node='log_format = "json"')
    with node.log_path.open("ab") as log:
        options = ["-n", "--pidfile=", "hyperbloom", "-c", str(node.config_path)]
        node.process = subprocess.Popen(
            [sys.executable, "-c", FAULTY, *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=node.folder,
        )
    wait_until(node._answers, 60, "the node is ready")
    return node
