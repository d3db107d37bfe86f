"""The command as a process: pipes, signals, what it loads, and two real nodes typed by hand."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from nodes import RealNode, wait_until

COMMAND = [sys.executable, "-m", "hyperbloom.cli"]
LOADED = """
import sys
sys.argv = ["hyperbloom", *{arguments!r}]
try:
    from hyperbloom.cli import main
    main()
except SystemExit:
    pass
sys.stderr.write(" ".join(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def start(served, environment, *arguments, **more):
    return subprocess.Popen(
        [*COMMAND, "-c", str(served.folder), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **more,
    )


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (["--help"], {"twisted", "numpy", "lmdb", "rich", "http", "nacl"}),
        (["key"], {"twisted", "numpy", "lmdb", "rich", "http"}),
        (["count"], {"twisted", "numpy", "lmdb", "rich"}),
    ],
    ids=lambda found: " ".join(sorted(found)),
)
def test_what_is_not_needed_is_not_loaded(served, environment, arguments, unneeded):
    """The start is most of a short command's time."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(arguments=[*arguments, "-c", str(served.folder)])],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout
    assert not unneeded & set(done.stderr.split())


def test_put_streams_what_a_slow_source_writes(served, environment):
    putting = start(served, environment, "put", "-", stdin=subprocess.PIPE)
    putting.stdin.write(b"a\nb\n")
    putting.stdin.flush()
    wait_until(lambda: served.node.own.ordered == [b"a", b"b"], 20, "the first values are put")
    out, err = putting.communicate(b"c\n", timeout=240)
    assert (putting.returncode, out, err) == (0, b"3 new, 0 known in own\n", b"")


def test_put_takes_any_amount(served, environment):
    text = b"".join(b"%06d\n" % number for number in range(40_000))
    putting = start(served, environment, "put", "-", "--json", stdin=subprocess.PIPE)
    out, err = putting.communicate(text, timeout=240)
    form = json.loads(out)
    assert (form["new"], form["known"], form["name"]) == (40_000, 0, "own")
    assert err == b""
    assert len(served.node.own.ordered) == 40_000


def has(served, environment, text, *more):
    asking = start(served, environment, "has", "-", *more, stdin=subprocess.PIPE)
    out, err = asking.communicate(text, timeout=240)
    assert err == b""
    return asking.returncode, out


def test_has_answers_each_line(served, environment):
    served.call(served.node.own.insert, [b"a", b"b\xff"])
    assert has(served, environment, b"a\nx\nb\xff\n") == (1, b"yes\ta\nno\tx\nyes\tb\xff\n")
    assert has(served, environment, b"a\nb\xff") == (0, b"yes\ta\nyes\tb\xff\n")
    assert has(served, environment, b"61\n", "--hex") == (0, b"yes\t61\n")
    assert has(served, environment, b"") == (0, b"")
    code, out = has(served, environment, b"x\na\n", "--json")
    assert (code, json.loads(out)) == (1, {"all": False, "has": [False, True]})
    code, out = has(served, environment, b"\n", "--json")
    assert (code, json.loads(out)) == (0, {"all": True, "has": []})


def test_a_reader_that_goes_is_no_error(served, environment):
    served.call(served.node.own.insert, [b"%09d" % number for number in range(100_000)])
    getting = start(served, environment, "get")
    assert getting.stdout.read(10) == b"000000000\n"
    getting.stdout.close()
    assert getting.wait(240) == 141
    assert getting.stderr.read() == b""
    getting.stderr.close()


def test_a_short_output_to_nobody(served, environment):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "-c", str(served.folder), "count"],
        env=environment,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["get"], ["count"], ["status", "--json"]])
def test_an_output_without_room_is_said(served, environment, tmp_path, arguments):
    served.call(served.node.own.insert, [b"%07d" % n for n in range(20_000)])
    with open(tmp_path / "full", "wb") as full:
        done = subprocess.run(
            [*COMMAND, "-c", str(served.folder), *arguments],
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=240,
            # Stands in for a full disk.
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
        )
    assert done.returncode == 1
    sentence = "the output cannot be written: File too large; what there is of it is not whole"
    if "--json" in arguments:
        assert json.loads(done.stderr)["detail"] == sentence
    else:
        assert done.stderr.decode() == f"hyperbloom: {sentence}\n"


def test_watch_is_flushed_and_ends_quietly(served, environment):
    watching = start(served, environment, "watch", "--existing")
    served.call(served.node.own.insert, [b"a"])
    assert watching.stdout.readline() == b"a\n"
    served.call(served.node.own.insert, [b"b"])
    assert watching.stdout.readline() == b"b\n"
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=240)
    assert (watching.returncode, out, err) == (130, b"", b"")


def test_watch_notices_that_the_node_stops(served, environment):
    watching = start(served, environment, "watch", "--existing")
    served.call(served.node.own.insert, [b"a"])
    assert watching.stdout.readline() == b"a\n"
    served.call(served.service.stopService)
    out, err = watching.communicate(timeout=240)
    assert (watching.returncode, out) == (4, b"")
    assert err == b"hyperbloom: the node has stopped\n"


# Real nodes


@pytest.fixture
def nodes(tmp_path):
    made = []

    def make(name):
        made.append(RealNode(tmp_path / name))
        return made[-1]

    yield make
    for node in made:
        if node.process is not None:
            node.kill()


def say(node, *arguments, code=0, stdin=b""):
    done = node.command(*arguments, stdin=stdin)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout.decode()


def test_two_nodes_typed_by_hand(nodes):
    owner, member = nodes("owner").start(), nodes("member").start()
    feed = owner.key.hex()
    assert say(owner, "put", "b", "a", "c") == "3 new, 0 known in own\n"
    assert say(owner, "get") == "a\nb\nc\n"
    line = say(owner, "invite", member.key.hex(), "--expires", "1h").strip()
    assert "may write until" in say(member, "join", line, "--alias", "shared")
    wait_until(lambda: say(member, "count") == "3\n", 30, "the owner's values are there")
    assert say(member, "get", "--feed", "shared", "--limit", "2") == "a\nb\n"
    assert say(member, "put", "d") == "1 new, 0 known in shared\n"
    wait_until(lambda: owner.command("has", "d").returncode == 0, 30, "the member's value is there")
    assert json.loads(say(owner, "count", "--json")) == json.loads(say(member, "count", "--json"))
    assert feed in say(member, "peers")
    assert member.key.hex() in say(owner, "trust", "show")
    assert json.loads(say(member, "status", "--json"))["connections"] == 1
    assert "nothing is wrong" in say(owner, "verify")
    say(owner, "snapshot", str(owner.folder / "snap"))
    assert say(owner, "verify", str(owner.folder / "snap")) == "4 values, nothing is wrong\n"
    say(owner, "snapshot", str(owner.folder / "snap"), code=1)
    assert say(member, "feed", "leave", "shared", "--yes").startswith("Left shared")
    say(member, "get", "--feed", feed, code=8)
    assert owner.stop()
    assert say(owner, "verify") == "4 values, nothing is wrong\n"
    say(owner, "snapshot", str(owner.folder / "rest"))
    say(owner, "snapshot", str(owner.folder / "rest"), code=1)
    say(owner, "count", code=4)


def test_links_passed_by_hand(nodes):
    owner, member = nodes("owner").start(), nodes("member").start()
    feed = owner.key.hex()
    say(owner, "put", "a")
    say(member, "feed", "join", feed, "--peer", owner.address)
    say(member, "put", "--feed", feed, "b", code=5)
    link = say(owner, "trust", "issue", member.key.hex(), "--expires", "10s").strip()
    assert "may write until" in say(member, "trust", "add", feed, link)
    wait_until(lambda: say(member, "get", "--feed", feed) == "a\n", 30, "the value is there")
    assert say(member, "put", "b") == f"1 new, 0 known in {feed[:12]}\n"

    def refused():
        time.sleep(0.2)
        return member.command("put", "c").returncode == 5

    wait_until(refused, 30, "the link has run out")
    assert "EXPIRED" in say(member, "status")


def test_a_watch_of_a_real_node(nodes):
    node = nodes("one").start()
    arrived = []

    def watch():
        with node.client() as client:
            for arrival in client.watch(seconds=20):
                arrived.append(arrival)
                if len(arrived) == 3:
                    return

    watcher = threading.Thread(target=watch)
    watcher.start()
    wait_until(lambda: arrived, 20, "the watch is open")
    say(node, "put", "x", "y")
    watcher.join(240)
    assert [arrival.value for arrival in arrived[1:]] == [b"x", b"y"]
    assert arrived[1].origin == node.key
    assert abs(arrived[1].received_at - time.time()) < 600


def test_run_becomes_the_node(nodes, environment):
    node = nodes("one")
    node.process = subprocess.Popen(
        [*COMMAND, "run", "-c", str(node.config_path)],
        stdout=node.log_path.open("wb"),
        stderr=subprocess.STDOUT,
        env=environment,
    )
    wait_until(node._answers, 30, "the node answers")
    assert node.client().ping()["pid"] == node.process.pid
    busy = subprocess.run(
        [*COMMAND, "run", "-c", str(node.config_path)],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert busy.returncode in (7, 9)
    assert busy.stderr.startswith(b"hyperbloom: ")
    assert busy.stderr.count(b"\n") == 1
    node.process.send_signal(signal.SIGINT)
    node.process.wait(240)
    node.process = None
    assert not (node.folder / "control.sock").exists()
    log = node.log_path.read_text()
    assert "The node serves" in log
    for noise in ("starting on", "Starting factory", "Stopping factory", " Closed)"):
        assert noise not in log


def test_a_busy_port(nodes, environment):
    node = nodes("one")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        text = node.config_path.read_text().replace(str(node.port), str(taken.getsockname()[1]))
        node.config_path.write_text(text)
        done = subprocess.run(
            [*COMMAND, "run", "-c", str(node.config_path)],
            env=environment,
            capture_output=True,
            check=False,
        )
    assert done.returncode == 9
    assert b"cannot listen on 127.0.0.1, port" in done.stderr
    assert b"change listen under [node]" in done.stderr
    assert done.stderr.count(b"\n") == 1
