"""Commands that read by a prefix, and values that end in NUL."""

from __future__ import annotations

import json
import subprocess

import pytest
from nodes import wait_until
from test_processes import COMMAND, start

LINES = b"b\nnew"


@pytest.fixture
def filled(node, served):
    served.call(served.node.own.insert, [b"a", b"ba", LINES, b"bb", b"b\xff", b"c"])
    return node


def test_get_by_prefix(filled):
    assert filled("get", "--prefix", "b").stdout_bytes == b"b\nnew\nba\nbb\nb\xff\n"
    assert filled.out("get", "--prefix", "62", "--hex", "--limit", "2") == "620a6e6577\n6261\n"
    assert filled.out("get", "--prefix", "x") == ""
    assert json.loads(filled.out("get", "--prefix", "c", "--json")) == {"values": ["63"]}


def test_get_by_a_prefix_asks_peers_for_it_alone(filled, served):
    filled("get", "--prefix", "b", "--timeout", "2s")
    assert ("fetch", b"b", b"c", None, 1.6) in served.node.calls


def test_count_by_prefix_and_range(filled, served):
    assert filled.out("count", "--prefix", "b") == "4\n"
    assert filled.out("count", "--prefix", "ff", "--hex") == "0\n"
    assert filled.out("count", "--start", "b", "--end", "bb") == "2\n"
    assert filled.out("count", "--start", "bb", "--prefix", "b") == "2\n"
    assert json.loads(filled.out("count", "--prefix", "ba", "--json")) == {"count": 1, "bytes": 2}
    assert not [call for call in served.node.calls if call[0] == "read"]


def test_has_by_prefix(filled):
    assert filled.out("has", "--prefix", "bb") == "yes\n"
    missing = filled("has", "--prefix", "bx")
    assert (missing.exit_code, missing.stdout) == (1, "no\n")
    assert json.loads(filled.out("has", "--prefix", "62", "--hex", "--json"))["all"] is True


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["has", "--prefix", "a", "b"], "say which values: VALUE…, -, or --prefix P"),
        (["has"], "say which values: VALUE…, -, or --prefix P"),
        (["count", "--prefix", "zz", "--hex"], "'zz' is not hex"),
    ],
)
def test_what_does_not_go_together(filled, arguments, said):
    assert filled.refusal(2, *arguments).startswith(said)


def test_values_end_in_nul_in_and_out(filled, served, environment):
    assert filled("get", "-0", "--prefix", "b").stdout_bytes == b"b\nnew\0ba\0bb\0b\xff\0"
    assert filled("get", "-0", "--hex", "--limit", "1").stdout_bytes == b"61\0"

    def said(*arguments, stdin):
        process = start(served, environment, *arguments, stdin=subprocess.PIPE)
        out, err = process.communicate(stdin, timeout=240)
        assert err == b""
        return out

    assert said("put", "-0", "-", stdin=b"x\ny\0\0z\r\n\0ba") == b"2 new, 1 known in own\n"
    assert {b"x\ny", b"z\r\n"} <= served.node.own.known
    assert said("has", "-0", "-", stdin=b"x\ny\0no\nne") == b"yes\tx\ny\0no\tno\nne\0"
    said("forget", "-0", "-", stdin=b"x\ny\0z\0")
    assert served.node.own.forgetting.steps[-1].values == (b"x\ny", b"z")


def test_watch_by_prefix_ends_values_in_nul(served, environment):
    watching = start(served, environment, "watch", "--prefix", "b", "-0", "--count", "2")
    wait_until(lambda: served.node.own.subscribers, 240, "the watch has begun")
    served.call(served.node.own.insert, [b"a", b"b\n1", b"c", b"b2"])
    out, err = watching.communicate(timeout=240)
    assert (watching.returncode, out, err) == (0, b"b\n1\0b2\0", b"")


def test_a_pipeline_of_sort_and_xargs(served, environment):
    """`get -0` through tools that know -z and -0, and back by `put -0 -`."""
    served.call(served.node.own.insert, [b"b one\nline", b"b two", b"a"])
    command = " ".join([*COMMAND, "-c", str(served.folder)])
    script = f"{command} get -0 --prefix b | sort -zr | xargs -0 printf '[%s]'"
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=environment, capture_output=True, check=True, timeout=240
    )
    assert done.stdout == b"[b two][b one\nline]"
    script = f"{command} get -0 --prefix b | tr b c | {command} put -0 -"
    done = subprocess.run(
        ["/bin/sh", "-c", script], env=environment, capture_output=True, check=True, timeout=240
    )
    assert done.stdout == b"2 new, 0 known in own\n"
    assert {b"c one\nline", b"c two"} <= served.node.own.known
