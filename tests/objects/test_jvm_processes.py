"""Nodes as processes with JVMs over real sockets: large pools, quick changes, kill -9."""

from __future__ import annotations

import random
import threading
from contextlib import closing

import pytest
from jvm_peer import JvmPeer, JvmSocket
from nodes import real_nodes, wait_until
from test_jvm_scenarios import CLASSES, DECLARED
from test_pool_processes import PoolNodes

from hyperbloom.json_fields import hash_text, parse_hash
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.classes.types import Types
from hyperbloom.store import Store, WriterInline
from hyperbloom.store.objects.offers import OfferedObject
from hyperbloom.store.objects.rule import OfferObjects

SETTINGS = {"hash_rule": "jvm", "types": [str(one) for one in DECLARED]}


@pytest.fixture
def pools(tmp_path):
    with real_nodes(tmp_path) as nodes:
        yield PoolNodes(nodes, tmp_path)


@pytest.fixture
def jvms():
    """Makes JVMs on sockets, and ends them."""
    made = []

    def make(**more):
        one = JvmSocket(JvmPeer(CLASSES, **more))
        made.append(one)
        return one

    yield make
    for one in made:
        one.kill()


def hashes(node):
    with node.client() as client:
        return {parse_hash(form["hash"]) for form in client.objects()}


def pool_peers(node):
    with node.client() as client:
        return client.status()["objects"]["peers"]


def wait_until_equal(node, jvm, *, without=(), of=None):
    left = set(without)

    def reached():
        held = hashes(node) - left
        return held == set(jvm.peer.objects) - left and of in (None, len(held))

    wait_until(reached, 60, "the same objects on both sides")


def fill(node, count):
    """Put objects into the store of a node that does not run; their hashes."""
    types = Types(rule=HashRule.JVM, configured=DECLARED)
    offers = []
    for number in range(count):
        fields = {"name": f"ours {number:04}", "age": number}
        offers.append(
            OfferedObject(
                hash=types.hash_of("Person", fields), stamp=1, fields=fields, type_name="Person"
            )
        )
    with closing(Store.open(node.folder / "store")) as store:
        WriterInline(store).submit(OfferObjects(offers, 1, 1_000_000), lambda _: None)
    return [offer.hash for offer in offers]


@pytest.mark.parametrize(
    ("passphrase", "jvm_dials"), [(None, False), ("correct horse", True)], ids=["plain", "aes"]
)
def test_two_thousand_objects_and_five_hundred_quick_changes(pools, jvms, passphrase, jvm_dials):
    jvm = jvms(passphrase=passphrase)
    theirs = [jvm.peer.add("Pair", left=n, right=1_000_000 + 40 * n) for n in range(1_000)]
    port = None if jvm_dials else jvm.listen()
    peers = [] if jvm_dials else [f"127.0.0.1:{port}"]
    node = pools.make("node", passphrase=passphrase, **SETTINGS, peers=peers)
    ours = fill(node, 1_000)
    node.start()
    if jvm_dials:
        jvm.dial(node.pool_port)
    wait_until_equal(node, jvm, of=2_000)
    with node.client() as client:
        form = client.add_object({"longN": "large", "longV": 2**40}, type_name="TLong")
    unread = {parse_hash(form["hash"])}

    def changes_there():
        for index in range(250):
            theirs[index] = jvm.peer.set(theirs[index], "left", 500_000 + index)

    thread = threading.Thread(target=changes_there)
    thread.start()
    with node.client() as client:
        for index in range(250):
            changed = client.change_object(hash_text(ours[index]), {"age": 5_000 + index})
            ours[index] = parse_hash(changed["hash"])
    thread.join(60)
    wait_until_equal(node, jvm, without=unread, of=2_000)
    assert set(jvm.peer.objects) == {*ours, *theirs}
    assert (jvm.peer.kicks_said, jvm.peer.kicks_heard, jvm.peer.ends) == (0, 0, [])
    assert jvm.accepted == (0 if jvm_dials else 1)
    (peer,) = pool_peers(node)
    assert (peer["kin"], peer["untold"]) == (False, 1)
    assert "is beyond 32 bits" in peer["untold_why"]
    said = node.command("status").stdout.decode()
    assert "about objects it cannot read" in said
    assert "is beyond 32 bits" in said


def test_a_chain_of_nodes_and_jvms_over_sockets(pools, jvms):
    """JVM, ours, JVM, ours: each change goes all the way."""
    first, second = jvms(), jvms()
    port = second.listen()
    peers = [f"127.0.0.1:{port}"]
    one, two = (pools.make(name, **SETTINGS, peers=peers).start() for name in ("one", "two"))
    wait_until(lambda: second.accepted == 2, 30, "both nodes at the JVM in the middle")
    first.dial(one.pool_port)
    wait_until(lambda: len(pool_peers(one)) == 2, 30, "the first JVM")
    wait_until(lambda: len(pool_peers(two)) == 1, 30, "the second node")
    number = first.peer.add("Person", name="far", age=1)
    wait_until(lambda: hashes(two) == {number}, 30, "the object at the other end")
    with two.client() as client:
        number = parse_hash(client.change_object(hash_text(number), {"age": 2})["hash"])
    wait_until(lambda: set(first.peer.objects) == {number}, 30, "the change back at the first")
    first.peer.remove(number)
    wait_until(lambda: hashes(two) == set(), 30, "the removal at the other end")
    assert set(second.peer.objects) == set()
    assert [jvm.peer.kicks_said + jvm.peer.kicks_heard for jvm in (first, second)] == [0, 0]


@pytest.mark.parametrize("passphrase", [None, "correct horse"], ids=["plain", "aes"])
def test_kill_9_of_either_side(pools, jvms, passphrase):
    jvm = jvms(passphrase=passphrase)
    port = jvm.listen()
    peers = [f"127.0.0.1:{port}"]
    node = pools.make("node", passphrase=passphrase, **SETTINGS, peers=peers).start()
    wait_until(lambda: len(pool_peers(node)) == 1, 30, "the connection")
    chance = random.Random(5)
    numbers = [jvm.peer.add("Person", name=f"n{n:03}", age=n) for n in range(200)]
    numbers[3] = jvm.peer.set(numbers[3], "age", 900)
    wait_until_equal(node, jvm, of=200)
    node.kill()
    for _ in range(20):
        jvm.peer.add("Pair", left=chance.randrange(1 << 20), right=2)
    node.start()
    wait_until_equal(node, jvm, of=220)
    assert jvm.peer.kicks_heard == 0
    # The JVM keeps nothing: it has all again from the node.
    jvm.kill()
    again = jvms(passphrase=passphrase)
    again.listen(port)
    wait_until_equal(node, again, of=220)
    with node.client() as client:
        for form in list(client.objects())[:50]:
            client.remove_object(form["hash"])
    wait_until_equal(node, again, of=170)
    assert (again.peer.kicks_said, again.peer.kicks_heard) == (0, 0)


def test_a_node_that_stops_leaves_the_jvm_its_pool(pools, jvms):
    jvm = jvms()
    port = jvm.listen()
    peers = [f"127.0.0.1:{port}"]
    node = pools.make("node", **SETTINGS, peers=peers).start()
    kept = jvm.peer.add("Person", name="kept", age=1)
    wait_until(lambda: hashes(node) == {kept}, 30, "the object")
    node.stop()
    wait_until(lambda: jvm.peer.connections == [], 30, "the end of the connection")
    assert (set(jvm.peer.objects), jvm.peer.kicks_heard) == ({kept}, 0)


def test_types_are_declared_by_a_program_and_kept(pools, jvms):
    node = pools.make("node", hash_rule="jvm", types=["Pair(int left, int right)"]).start()
    done = node.command("object", "declare", "Person(String name, int age)")
    assert (done.returncode, done.stdout) == (0, b"declared Person(String name, int age)\n")
    node.kill()
    node.start()
    listed = node.command("object", "types").stdout.decode()
    assert "Pair(int left, int right)\tconfig" in listed
    assert "Person(String name, int age)\tdeclared" in listed
    jvm = jvms()
    number = jvm.peer.add("Person", name="Zoë", age=7)
    jvm.dial(node.pool_port)
    wait_until(lambda: hashes(node) == {number}, 30, "the object, by its class's hash")
    done = node.command("object", "set", hash_text(number), "age=8")
    assert done.returncode == 0, done.stderr
    wait_until_equal(node, jvm, of=1)
    refused = node.command("object", "declare", "Pair(long left, int right)")
    assert refused.returncode == 1
    assert b"stands under [objects] types" in refused.stderr
    assert node.command("object", "undeclare", "Person").returncode == 0
    assert node.command("object", "undeclare", "Person").returncode == 8
    assert node.command("object", "declare", "Person(Strang name)").returncode == 2
