"""Pools of real nodes: twistd processes on 127.0.0.1, commands, clients, kill -9."""

from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from nodes import free_port, real_nodes, wait_until

from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.client.remote_pool import RemotePool, RemoteRecord
from hyperbloom.objects.classes.types import persisted
from hyperbloom.objects.wire.errors import ObjectGone
from hyperbloom.store import Store


@persisted
class Person:
    name: str
    age: int = 0


@persisted
class Tag:
    word: str

    def hash_code(self):
        return len(self.word)


class PoolNodes:
    """Nodes whose pools dial each other."""

    def __init__(self, nodes, folder):
        self.nodes = nodes
        self.folder = folder

    def make(self, name, *peers, passphrase=None, **more):
        port = free_port()
        lines = {"enabled": True, "listen": [f"tcp:{port}:interface=127.0.0.1"]}
        lines |= {"peers": [f"127.0.0.1:{peer.pool_port}" for peer in peers]}
        lines |= {"retry_first": 0.1, "retry_longest": 0.5, "parents": max(1, len(peers))} | more
        if passphrase is not None:
            lines["passphrase_file"] = "passphrase"
        text = "\n".join(f"{key} = {json.dumps(value)}" for key, value in lines.items())
        node = self.nodes.make(name, config=f"[objects]\n{text}")
        node.pool_port = port
        if passphrase is not None:
            path = node.folder / "passphrase"
            path.write_text(passphrase + "\n")
            path.chmod(0o600)
        return node


@pytest.fixture
def pools(tmp_path):
    with real_nodes(tmp_path) as nodes:
        yield PoolNodes(nodes, tmp_path)


def digest(node):
    with node.client() as client:
        return client.status()["objects"]["digest"]


def count(node):
    with node.client() as client:
        return client.status()["objects"]["count"]


def wait_for_peers(node, number):
    def reached():
        with node.client() as client:
            return len(client.status()["objects"]["peers"]) == number

    wait_until(reached, 20, f"{number} pool peers of {node.folder.name}")


def wait_until_equal(*nodes, objects):
    def reached():
        return {count(node) for node in nodes} == {objects} and len(set(map(digest, nodes))) == 1

    wait_until(reached, 20, f"{objects} objects on all nodes")


def ring(pools, **more):
    one = pools.make("one", **more).start()
    two = pools.make("two", one, **more).start()
    three = pools.make("three", two, one, **more).start()
    for node in (one, two, three):
        wait_for_peers(node, 2)
    return one, two, three


@pytest.mark.parametrize("passphrase", [None, "a secret"])
def test_three_nodes_in_a_ring_keep_their_pools_the_same(pools, passphrase):
    one, two, three = ring(pools, passphrase=passphrase)
    done = two.command("object", "add", "name=Ada", "age=36", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    number = shown["hash"]
    wait_until_equal(one, two, three, objects=1)
    changed = json.loads(three.command("object", "set", number, "age=37", "--json").stdout)
    assert changed["fields"] == {"name": "Ada", "age": 37}
    wait_until(lambda: digest(one) == digest(three), 20, "the change is everywhere")
    listed = one.command("object", "list", "--json").stdout.decode().splitlines()
    assert [json.loads(line)["fields"] for line in listed] == [changed["fields"]]
    gone = one.command("object", "remove", changed["hash"])
    assert gone.returncode == 0
    wait_until_equal(one, two, three, objects=0)
    status = one.command("status").stdout.decode()
    assert ("AES flag" in status) == (passphrase is not None)
    assert "pool peers\tfrom 127.0.0.1:" in status


def parents_of(node):
    with node.client() as client:
        peers = client.status()["objects"]["peers"]
    return [int(peer["address"].rpartition(":")[2]) for peer in peers if peer["outgoing"]]


def test_a_kicked_node_connects_elsewhere_and_tries_others_for_their_speed(pools):
    one, two = pools.make("one").start(), pools.make("two").start()
    three = pools.make("three", one, two, parents=1, probe_seconds=1).start()
    wait_until(lambda: len(parents_of(three)) == 1, 20, "a parent")
    tried = set()

    def both_were_tried():
        tried.update(parents_of(three))
        return tried == {one.pool_port, two.pool_port}

    wait_until(both_were_tried, 20, "the other one is tried")
    wait_until(lambda: len(parents_of(three)) == 1, 20, "one of the two is left")
    (port,) = parents_of(three)
    first, second = (one, two) if port == one.pool_port else (two, one)
    first.command("object", "add", "n=1")
    wait_until(lambda: count(three) == 1, 20, "the object")
    assert first.stop()
    wait_until(lambda: parents_of(three) == [second.pool_port], 20, "the other parent")
    wait_until(lambda: count(second) == 1, 20, "the object is there, too")


def test_commands_say_what_is_wrong(pools):
    node = pools.make("one").start()
    shown = json.loads(node.command("object", "add", "name=Ada", "--json").stdout)
    assert node.command("object", "show", "0" * 16).returncode == 8
    assert b"16 hex digits" in node.command("object", "show", "xyz").stderr
    assert b"no field" in node.command("object", "set", shown["hash"], "x=1").stderr
    assert node.command("object", "add", "novalue").returncode == 2
    assert node.command("object", "add", "a=1", "a=2").returncode == 2
    assert node.command("object", "watch", "--timeout", "0.2").returncode == 6
    text = node.command("object", "show", shown["hash"]).stdout.decode()
    assert text.splitlines() == [f"hash\t{shown['hash']}", "type\t-", 'name\t"Ada"']
    # A terminal gets the hash whole, too: no command takes the beginning of one.
    main, other = pty.openpty()
    command = [sys.executable, "-m", "hyperbloom.cli", "-c", str(node.config_path)]
    with subprocess.Popen([*command, "object", "list"], stdout=other) as listing:
        os.close(other)
        assert listing.wait(240) == 0
    assert shown["hash"] in os.read(main, 10_000).decode()
    os.close(main)
    plain = pools.nodes.make("plain").start()
    refused = plain.command("object", "list")
    assert refused.returncode == 1
    assert b"enabled = true" in refused.stderr


def test_watching_tells_what_happens_elsewhere(pools):
    one = pools.make("one").start()
    two = pools.make("two", one).start()
    wait_for_peers(two, 1)
    command = [sys.executable, "-m", "hyperbloom.cli", "-c", str(two.config_path)]
    with subprocess.Popen(
        [*command, "object", "watch", "--json", "--count", "3", "--timeout", "20"],
        stdout=subprocess.PIPE,
    ) as watching:
        time.sleep(1)
        number = json.loads(one.command("object", "add", "n=1", "--json").stdout)["hash"]
        changed = json.loads(one.command("object", "set", number, "n=2", "--json").stdout)["hash"]
        one.command("object", "remove", changed)
        events = [json.loads(line) for line in watching.stdout]
    assert [event["event"] for event in events] == ["created", "changed", "removed"]
    assert [event["after"] and event["after"]["fields"] for event in events] == [
        {"n": 1},
        {"n": 2},
        None,
    ]
    assert events[1]["before"]["hash"] == number


def test_classes_of_programs_on_two_nodes(pools):
    one = pools.make("one").start()
    two = pools.make("two", one).start()
    wait_for_peers(two, 1)
    here = RemotePool(one.folder / "control.sock", [Person])
    there = RemotePool(two.folder / "control.sock", [Person, Tag])
    with here, there:
        ada = here.add(Person("Ada", 36))
        wait_until(lambda: there.find(Person), 10, "Ada is there")
        (other,) = there.find(Person, name="Ada")
        assert (other.name, other.age, there.find(Person, age=1)) == ("Ada", 36, [])
        assert there.find(Person)[0] is other
        seen = []
        there.on_changed(seen.append, Person)
        there.on_removed(seen.append)
        following = threading.Thread(target=there.follow, kwargs={"seconds": 20, "most": 2})
        following.start()
        time.sleep(0.5)
        ada.age = 37
        assert ada.age == 37
        here.remove(ada)
        following.join(240)
        assert [person.age for person in seen] == [37, 37]
        assert seen[0] is other
        with pytest.raises(ObjectGone, match="add the instance again"):
            ada.age = 38
        assert here.find(Person) == []


def test_clashes_and_unknown_types_are_told(pools):
    node = pools.make("one").start()
    with RemotePool(node.folder / "control.sock", [Tag]) as pool:
        pool.add(Tag("one"))
        with pytest.raises(Problem) as caught:
            pool.add(Tag("two"))
        assert caught.value.kind is ProblemKind.CONFLICT
        with node.client() as client:
            client.add_object({"x": 1, "y": {"$bytes": "00ff"}})
        (record,) = [found for found in pool if isinstance(found, RemoteRecord)]
        assert (record["x"], record["y"]) == (1, b"\x00\xff")


SCRIPT = """
import os, sys
from pathlib import Path
from hyperbloom.client.client import Client
client = Client(Path(sys.argv[1]))
number = 0
while True:
    number += 1
    # Java's hashCode takes "a1", 2 for "a2", 1: names must be far from each other.
    name = sys.argv[2] + os.urandom(8).hex()
    form = client.add_object({"name": name, "n": 0})
    for n in range(1, 4):
        form = client.change_object(form["hash"], {"n": n})
        os.write(1, f"{name} {n}\\n".encode())
    if number % 3 == 0:
        os.write(1, f"{name} removing\\n".encode())
        client.remove_object(form["hash"])
        os.write(1, f"{name} removed\\n".encode())
"""


def objects_on_disk(node):
    """The fields of every object that a node which does not run has, by their name."""
    with closing(Store.open_readonly(node.folder / "store")) as store:
        records = store.objects(store.object_hashes())
    return {record.fields["name"]: record.fields for record in records}


@pytest.mark.slow
def test_a_node_killed_in_mid_change_has_all_it_acknowledged_and_reconciles(pools):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    chance = random.Random(seed)
    one = pools.make("one").start()
    two = pools.make("two", one).start()
    total = 0
    for turn in range(4):
        said = {}
        wait_for_peers(two, 1)
        with subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(two.folder / "control.sock"), f"t{turn}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        ) as writer:
            assert writer.stdout.readline()
            time.sleep(chance.uniform(0.1, 0.6))
            two.kill()
            writer.wait(240)
            for line in writer.stdout.read().decode().splitlines():
                name, n = line.split()
                said[name] = n
        # Meanwhile the other goes on with what it has.
        with one.client() as client:
            for form in list(client.objects())[:2]:
                if "note" not in form["fields"]:
                    client.change_object(form["hash"], {"n": 100 + turn})
        verified = two.command("verify", str(two.folder / "store"))
        assert verified.returncode == 0, verified.stdout
        # From its own disk: once it runs, it may have from the other what it lost itself.
        on_disk = objects_on_disk(two)
        for name, n in said.items():
            if n == "removed":
                assert name not in on_disk
            elif n != "removing":
                assert on_disk[name]["n"] >= int(n)
        two.start()
        wait_until(
            lambda: digest(one) == digest(two) and count(one) == count(two), 20, "equal pools"
        )
        with one.client() as client:
            shared = [form["fields"] for form in client.objects()]
        found = {fields["name"]: fields["n"] for fields in shared}
        assert len(found) == len(shared)
        # What was removed may be there again: a later change of the other holds.
        for name, n in said.items():
            if n.isdecimal():
                assert found[name] >= int(n)
        total += len(said)
    assert total > 3


def test_a_passphrase_file_that_others_can_read_stops_the_start(pools):
    node = pools.make("one", passphrase="x")
    (node.folder / "passphrase").chmod(0o644)
    with pytest.raises(AssertionError, match="chmod 600"):
        node.start()


def test_another_passphrase_keeps_two_nodes_apart_and_says_why(pools):
    one = pools.make("one", passphrase="x").start()
    two = pools.make("two", one, passphrase="y").start()

    def told():
        with two.client() as client:
            status = client.status()["objects"]
            return any("passphrase" in c["reason"] for c in status["closings"])

    wait_until(told, 20, "the passphrase is named")
