"""How far a command is: a line on a terminal, of one form, and nothing anywhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
import time

import pytest
from fake_node import a_peer
from nodes import wait_until
from test_processes import COMMAND
from twisted.internet.defer import Deferred

from hyperbloom.cli.output import Progress, how_far
from hyperbloom.replication.sync.wait_synced import InSync

KEY = bytes(range(32))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ((0, 0, "values", 0.0), "0 values"),
        ((1_200, 0, "values", 4.0), "1,200 values, 300/s"),
        ((500, 2_000, "values", 0.5), " 25% 500 of 2,000 values"),
        ((500, 2_000, "values", 10.0), " 25% 500 of 2,000 values, 50/s, 30s left"),
        ((1 << 30, 4 << 30, "bytes", 100.0), " 25% 1.0 GiB of 4.0 GiB, 10.2 MiB/s, 5m left"),
        ((2_000, 2_000, "values", 10.0), "100% 2,000 of 2,000 values, finishing"),
        ((2_100, 2_000, "values", 10.0), "100% 2,100 of 2,000 values, finishing"),
        ((1_999, 2_000, "values", 10.0), "100% 1,999 of 2,000 values, 200/s, nearly done"),
        ((1_500, 2_000, "values", 10.0, 500), " 75% 1,500 of 2,000 values, 100/s, 5s left"),
        ((500, 2_000, "values", 10.0, 500), " 25% 500 of 2,000 values"),
        ((0, 2_000, "values", 10.0), "  0% 0 of 2,000 values"),
    ],
)
def test_the_line(given, shown):
    assert how_far(*given) == shown


def at_a_terminal(served, environment, *arguments, **more):
    """Exit code and standard output of a command, and what a terminal of 80 columns was sent."""
    controlling, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "-c", str(served.folder), *arguments],
        env={**environment, "COLUMNS": "80", "TERM": "xterm"},
        stdout=subprocess.PIPE,
        stderr=terminal,
        **more,
    )
    os.close(terminal)
    shown = []

    def read():
        try:
            while part := os.read(controlling, 65_536):
                shown.append(part)
        except OSError:  # the end of a terminal that nobody has open
            return

    reader = threading.Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=240)
    reader.join(240)
    os.close(controlling)
    return process.returncode, out, b"".join(shown).decode()


def verifying(served):
    """Has a verification stand at a third until its asker has been told so."""
    asked = threading.Event()
    forms = served.service.context.work.forms

    def told():
        found = forms()
        if any(form["total"] for form in found):
            asked.set()
        return found

    served.service.context.work.forms = told

    def verify(tell):
        tell(1_000, 3_000)
        assert asked.wait(120)
        asked.clear()
        assert asked.wait(120)

    served.node.while_verifying = verify


def test_verify_of_a_running_node_says_how_far_the_node_is(served, environment):
    verifying(served)
    code, out, shown = at_a_terminal(served, environment, "verify")
    assert (code, out) == (1, b"one value is twice in the log\n")
    assert "verifying  33% 1,000 of 3,000 values" in shown
    assert max(map(len, re.split(r"[\r\n]", shown))) < 80
    assert shown.endswith("\r"), "the line is wiped"
    assert served.client().work() == []


@pytest.mark.parametrize("option", ["--json", "--quiet", "-q"])
def test_nothing_is_shown_under(served, environment, option):
    code, out, shown = at_a_terminal(served, environment, "verify", option)
    assert code == 1
    assert (b"twice" in out, shown) == (True, "")


def test_put_of_a_file_says_how_much_of_it_was_read(served, environment, tmp_path):
    """The bytes of the file: the number of its lines is not known."""
    insert = served.node.own.insert

    def slowly(values):
        time.sleep(2 * Progress.SECONDS_BETWEEN)
        return insert(values)

    served.node.own.insert = slowly
    path = tmp_path / "values"
    path.write_bytes(b"".join(b"%07d\n" % number for number in range(30_000)))
    with path.open("rb") as file:
        code, out, shown = at_a_terminal(served, environment, "put", "-", stdin=file)
    assert (code, out) == (0, b"30000 new, 0 known in own\n")
    assert re.search(r"putting +\d+% [\d.]+ KiB of 234 KiB", shown)


def test_what_the_node_does_can_be_asked(served):
    seen = []
    done = threading.Event()

    def verify(tell):
        tell(5, 9)
        assert done.wait(120)

    served.node.while_verifying = verify
    asking = threading.Thread(target=lambda: seen.append(served.client().verify()))
    asking.start()
    client = served.client()
    wait_until(lambda: [form for form in client.work() if form["total"]], 120, "it has begun")
    (form,) = client.work()
    done.set()
    asking.join(240)
    assert (form["kind"], form["done"], form["total"], form["unit"]) == ("verify", 5, 9, "values")
    assert form["seconds"] >= 0
    assert client.work() == []
    assert seen[0]["values"] == 7


def test_wait_synced_says_how_many_values_have_come(served, environment):
    """Of those that the peer has told of, as the node's answer about its peers has it."""
    feed = served.node.own
    served.call(feed.insert, [b"%d" % number for number in range(10)])
    served.node.connected = [a_peer(feed.key, expected=1_000)]
    waiting, answer = Deferred(), served.node.peers
    asked = []

    def peers():
        asked.append(None)
        if len(asked) == 3:
            waiting.callback(
                [InSync(name="friend:1", key=KEY, address="", at=1.0, source="digest")]
            )
        return answer()

    served.node.peers = peers
    served.node.wait_synced = lambda *_, timeout: waiting
    code, out, shown = at_a_terminal(served, environment, "wait-synced", "friend:1")
    assert (code, out) == (0, b"friend:1 is in sync, by digest: 10 values\n")
    assert "waiting   1% 10 of 1,000 values" in shown
