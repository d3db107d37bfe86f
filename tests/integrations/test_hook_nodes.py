"""Hooks of real nodes: killed at any moment, changed by a reload, and by https without a word."""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, real_nodes, wait_until
from webhook_receiver import receiving, status

from hyperbloom.api.control_socket import connect_unix
from hyperbloom.client.client import NodeUnreachable

#: Appends one line for each batch: its id, and what it read. Written at once, as several of it may
#: run: one that a killed node has left behind, and the next one's.
RECORDER = """
import json, os, sys
record = [os.environ["HYPERBLOOM_BATCH"], sys.stdin.read()]
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
os.write(file, json.dumps(record).encode() + b"\\n")
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


def hook(name: str, out: Path, *, since: str = "start", delay: float = 0.05) -> str:
    command = json.dumps([sys.executable, "-S", "-E", "-c", RECORDER, str(out)])
    return (
        f'[[hooks]]\nname = "{name}"\nfeed = "names"\ncommand = {command}\nsince = "{since}"\n'
        f"batch = 50\ndelay = {delay}\n"
    )


def batches(out: Path) -> list[tuple[str, list[tuple[int, bytes]]]]:
    """Id and values with their arrival numbers of each batch that was told.

    A line that is still being written is not one yet.
    """
    found = []
    for record in out.read_text().split("\n")[:-1] if out.exists() else ():
        told, text = json.loads(record)
        lines = [json.loads(line) for line in text.splitlines()]
        found.append((told, [(line["seq"], bytes.fromhex(line["value"])) for line in lines]))
    return found


def arrivals(node: RealNode) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    with node.client() as client:
        while True:
            page = client.arrivals_page(feed=node.feed_key.hex(), after=len(found)).arrivals
            if not page:
                return found
            found += [(one.seq, one.value) for one in page]


class Putting(threading.Thread):
    """Puts values until the node is gone; keeps those that it was told are on disk."""

    def __init__(self, node: RealNode, round_: int) -> None:
        super().__init__(daemon=True)
        self._node, self._round = node, round_
        self.stored: list[bytes] = []

    def run(self) -> None:
        number = 0
        try:
            with self._node.client() as client:
                while True:
                    values = [b"%d-%d" % (self._round, number + step) for step in range(7)]
                    client.put(values, feed=self._node.feed_key.hex())
                    self.stored += values
                    number += len(values)
                    time.sleep(0.002)
        except NodeUnreachable:
            return


def kill_while_values_come(nodes: Nodes, out: Path, *, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    node = nodes.make("teller", feed="names", config=hook("bell", out))
    stored: list[bytes] = []
    for round_ in range(kills):
        node.start()
        putting = Putting(node, round_)
        putting.start()
        # Some are killed before anything was told, most while something is.
        time.sleep(chance.choice([0.0, 0.05, 0.2, 0.4]) + 0.1 * chance.random())
        node.kill()
        putting.join()
        stored += putting.stored
    node.start()
    node.put(b"last")
    log = arrivals(node)
    assert {value for _, value in log} >= {*stored, b"last"}
    wait_until(lambda: any(log[-1] in told for _, told in batches(out)), 60, "the last is told")
    assert node.stop()

    found = batches(out)
    first_told: dict[str, list[tuple[int, bytes]]] = {}
    for told, values in found:
        # One that is told again is the same one, under the same id.
        assert first_told.setdefault(told, values) == values
    assert len(found) - len(first_told) <= kills, "only what was under way is told again"
    # All of them, in the order of arrival, each in one batch.
    assert [one for values in first_told.values() for one in values] == log


def test_a_node_that_is_killed_leaves_out_nothing(nodes: Nodes, tmp_path: Path) -> None:
    kill_while_values_come(nodes, tmp_path / "out", kills=3, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_a_node_that_is_killed_often_leaves_out_nothing(
    nodes: Nodes, tmp_path: Path, seed: int
) -> None:
    kill_while_values_come(nodes, tmp_path / "out", kills=10, seed=seed)


def test_a_reload_changes_a_hook(nodes: Nodes, tmp_path: Path) -> None:
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    node = nodes.make("teller", feed="names", config=hook("bell", one)).start()
    before = node.config_path.read_text().replace(hook("bell", one), "")

    def values(out: Path) -> list[bytes]:
        return [value for _, told in batches(out) for _, value in told]

    def use(config: str) -> None:
        node.config_path.write_text(before + config)
        done = node.command("reload")
        assert done.returncode == 0, done.stderr
        assert b"[[hooks]]" in done.stdout

    node.put(b"1")
    wait_until(lambda: values(one) == [b"1"], 30, "the first is told")
    # The same hook with another command goes on; one of another name begins anew.
    use(hook("bell", two) + hook("gong", three, since="now"))
    node.put(b"2")
    wait_until(lambda: values(two) == [b"2"], 30, "the second is told")
    wait_until(lambda: values(three) == [b"2"], 30, "and to the new hook")
    use(hook("bell", two))
    node.put(b"3")
    wait_until(lambda: values(two) == [b"2", b"3"], 30, "the third is told")
    assert node.stop()
    assert (values(one), values(three)) == ([b"1"], [b"2"])


def metrics(node: RealNode) -> str:
    with closing(connect_unix(node.folder / "control.sock", 60)) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
    assert 'hyperbloom_integration_failing{kind="hook",name="chat"} 1.0' in text
    return text


def test_a_webhook_tells_a_server_and_nobody_its_url(nodes: Nodes, tmp_path: Path) -> None:
    with receiving(status(500), status(200)) as receiver:
        config = f'[[hooks]]\nname = "chat"\nfeed = "names"\nurl = "{receiver.url()}"\n'
        node = nodes.make("teller", feed="names", config=config).start()
        node.put(b"1", b"2")
        wait_until(lambda: receiver.requests, 60, "it is sent")

        def shown() -> str:
            done = node.command("hook", "show", "chat", "--json")
            assert done.returncode == 0, done.stderr
            return done.stdout.decode()

        wait_until(lambda: "answered with 500" in shown(), 60, "it has failed")
        with node.client() as client:
            told = [shown(), json.dumps(client.status()), metrics(node)]
        done = node.command("hook", "run", "chat")
        assert done.returncode == 0, done.stderr
        assert json.loads(shown())["figures"]["values_told"] == 2
    assert node.stop()
    first, second = receiver.requests
    assert (first.path, first.body) == (second.path, second.body)
    values = [bytes.fromhex(json.loads(line)["value"]) for line in first.body.splitlines()]
    assert values == [b"1", b"2"]
    for text in (*told, node.log_path.read_text()):
        assert "token=private" not in text
        assert "/secret/path" not in text
