"""Our pool with the JVM implementation as it was recorded, in memory: every oddity, both roles."""

from __future__ import annotations

import random

import pytest
from jvm_formats import Float
from jvm_peer import CREATION, INITIALIZE, OK, JvmLink, JvmPeer
from pool_network import fired
from test_jvm_scenarios import CLASSES, DECLARED
from test_pool_peers import closings

from hyperbloom.connections.close_reason import CloseReason
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.limits import (
    FOREIGN_PACKET_BYTES,
    FOREIGN_WINDOW_BYTES,
    FOREIGN_WINDOW_WRITES,
    MAX_EARLY_MESSAGES,
)
from hyperbloom.objects.service import AcceptFactory, DialFactory
from hyperbloom.objects.wire.errors import ObjectError

PASSPHRASES = pytest.mark.parametrize("passphrase", [None, "correct horse"], ids=["plain", "aes"])
WHO_DIALS = pytest.mark.parametrize("jvm_dials", [True, False], ids=["it dials", "we dial"])
OPTIONS = {"rule": HashRule.JVM, "declared": DECLARED}


def link(net, node, jvm, *, jvm_dials=True, port=1):
    """Connect a node and a JVM; the JVM's end."""
    one = JvmLink(jvm, dialled=jvm_dials, port=port)
    near, far = net.transports("jvm", node.name) if jvm_dials else net.transports(node.name, "jvm")
    if jvm_dials:
        near.protocol, far.protocol = one, AcceptFactory(node.network).buildProtocol(None)
        far.protocol.makeConnection(far)
        one.makeConnection(near)
    else:
        near.protocol, far.protocol = DialFactory(node.network).buildProtocol(None), one
        one.makeConnection(far)
        near.protocol.makeConnection(near)
    return one


def ours(node):
    return set(node.contents())


def assert_at_peace(*jvms):
    for jvm in jvms:
        assert (jvm.kicks_said, jvm.kicks_heard, jvm.ends) == (0, 0, [])


VALUES = {
    "Person": [{"name": "Jane", "age": 41}, {"name": None, "age": -1}, {"name": "😀", "age": 0}],
    "TInt": [{"intN": "a", "intV": 2**31 - 1}, {"intN": "b", "intV": -(2**31)}],
    "TLong": [{"longN": "a", "longV": 7}, {"longN": "b", "longV": -5}],
    "TBoxedLong": [{"boxedN": "a", "boxedV": None}],
    "TFloat": [{"floatN": "a", "floatV": Float(1.5)}, {"floatN": "b", "floatV": Float(-0.0)}],
    "TDouble": [{"doubleN": "a", "doubleV": 0.5}, {"doubleN": "b", "doubleV": float("inf")}],
    "TBool": [{"boolN": "a", "boolV": True}, {"boolN": "b", "boolV": False}],
    "TText": [{"textN": "a", "textV": "x" * 300}],
    "TList": [{"listN": "a", "listV": [1, "x", None, [True]]}],
    "TMap": [{"mapN": "a", "mapV": {"k": [1], "n": None}}, {"mapN": "b", "mapV": {1: "one"}}],
}
#: What only goes from the JVM to us.
ONE_WAY = {
    "TByte": [{"byteN": "a", "byteV": -128}],
    "TShort": [{"shortN": "a", "shortV": 300}],
    "TLong": [{"longN": "c", "longV": 2**40}],
    "TBoxedLong": [{"boxedN": "b", "boxedV": 5}],
    "TDouble": [{"doubleN": "c", "doubleV": 0.1}],
}


@PASSPHRASES
@WHO_DIALS
@pytest.mark.parametrize("live", [True, False], ids=["live", "before"])
def test_every_type_of_field_goes_both_ways(net, passphrase, jvm_dials, live):
    node = net.add("node", passphrase=passphrase, **OPTIONS)
    jvm = JvmPeer(CLASSES, passphrase=passphrase)
    if live:
        link(net, node, jvm, jvm_dials=jvm_dials)
        net.run(1)
    for name, objects in VALUES.items():
        for index, values in enumerate(objects):
            if index % 2:
                jvm.add(name, **values)
            else:
                node.put(name, **{key: plain(value) for key, value in values.items()})
    for name, objects in ONE_WAY.items():
        for values in objects:
            jvm.add(name, **values)
    if not live:
        link(net, node, jvm, jvm_dials=jvm_dials)
    net.run(4)
    assert ours(node) == set(jvm.objects)
    assert len(jvm.objects) == sum(map(len, [*VALUES.values(), *ONE_WAY.values()]))
    assert_at_peace(jvm)


def plain(value):
    return float(value) if isinstance(value, Float) else value


@PASSPHRASES
@WHO_DIALS
def test_changes_and_removals_go_both_ways(net, passphrase, jvm_dials):
    node = net.add("node", passphrase=passphrase, **OPTIONS)
    jvm = JvmPeer(CLASSES, passphrase=passphrase)
    link(net, node, jvm, jvm_dials=jvm_dials)
    net.run(1)
    one, two = jvm.add("Person", name="Jane", age=41), node.put("Person", name="Ada", age=36)
    net.run(1)
    for turn in range(20):
        one = jvm.set(one, "age", turn)
        two = node.change(two, age=turn)
    net.run(1)
    two, one = jvm.set(two, "name", "changed there"), node.change(one, name="changed here")
    net.run(1)
    one = node.change(one, name="both", age=1)
    net.run(1)
    assert ours(node) == set(jvm.objects) == {one, two}
    node.remove(one)
    jvm.remove(two)
    net.run(1)
    assert ours(node) == set(jvm.objects) == set()
    assert_at_peace(jvm)


@WHO_DIALS
def test_an_object_that_came_by_initialize_is_changed_and_removed_by_its_jvm(net, jvm_dials):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    kept, gone = jvm.add("Person", name="Zoë", age=7), jvm.add("Pair", left=1, right=2)
    link(net, node, jvm, jvm_dials=jvm_dials)
    net.run(1)
    assert ours(node) == {kept, gone}
    kept = jvm.set(kept, "age", 8)
    jvm.remove(gone)
    net.run(1)
    assert node.contents() == {kept: {"name": "Zoë", "age": 8}}
    kept = node.change(kept, age=9)
    net.run(1)
    assert set(jvm.objects) == {kept}


def test_a_ping_is_answered_and_latency_is_known(net):
    node, jvm = net.add("node", ping_seconds=1.0, **OPTIONS), JvmPeer(CLASSES)
    link(net, node, jvm)
    for _ in range(5):
        net.run(1)
        node.network.look()
    assert node.network.peers()[0].latency > 0
    assert_at_peace(jvm)


UNREADABLE = {
    "beyond 32 bits": ("TLong", {"longN": "x", "longV": 2**40}),
    "a byte string": ("TBytes", {"bytesN": "x", "bytesV": b"\0"}),
    "32 bits do not hold": ("TDouble", {"doubleN": "x", "doubleV": 0.1}),
    "no int": ("Person", {"name": "x", "age": "old"}),
    "told a byte": ("TByte", {"byteN": "x", "byteV": 1}),
    "Long other than null": ("TBoxedLong", {"boxedN": "x", "boxedV": 1}),
    "has another hash there": ("TList", {"listN": "x", "listV": [1.5]}),
    "no declared type": (None, {"something": 1}),
    "a packet takes": ("Person", {"name": "", "age": 1}),
}


@WHO_DIALS
@pytest.mark.parametrize("why", UNREADABLE)
def test_an_object_that_it_cannot_read_is_left_out_and_said(net, why, jvm_dials):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    name, fields = UNREADABLE[why]
    if why == "a packet takes":
        fields = {**fields, "name": net.random.randbytes(1_000).hex()}
    before, large = node.put("Person", name="before", age=1), node.put(name, **fields)
    link(net, node, jvm, jvm_dials=jvm_dials)
    net.run(2)
    live = node.put(name, **{**fields, next(iter(fields)): fields[next(iter(fields))]} | odd(why))
    after = node.put("Person", name="after", age=1)
    net.run(2)
    assert set(jvm.objects) == {before, after} == ours(node) - {large, live}
    (status,) = node.network.peers()
    assert status.untold == 2
    assert why in status.untold_why
    assert_at_peace(jvm)


def odd(why):
    """What tells the second object from the first, and is as unreadable."""
    if why == "no declared type":
        return {"something": 2}
    if why == "a packet takes":
        return {"age": 2}
    return {next(iter(UNREADABLE[why][1])): "y"} if why != "no int" else {"name": "y"}


def test_a_change_that_it_cannot_read_takes_the_object_from_it_until_it_can(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    link(net, node, jvm)
    number = node.put("TLong", longN="a", longV=1)
    net.run(1)
    assert set(jvm.objects) == {number}
    number = node.change(number, longV=2**40)
    net.run(1)
    assert jvm.objects == {}
    number = node.change(number, longV=3)
    net.run(1)
    assert set(jvm.objects) == {number}
    assert_at_peace(jvm)


def test_what_only_it_can_write_is_changed_here_in_its_other_fields(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    link(net, node, jvm)
    number = jvm.add("Mixed", title="x", count=1, open=True, stamp=2**40, tags=[], more={})
    net.run(1)
    number = node.change(number, title="y", count=2)
    net.run(1)
    assert set(jvm.objects) == {number}
    number = node.change(number, open=False)
    net.run(1)
    assert set(jvm.objects) == {number}
    assert_at_peace(jvm)


def test_stopping_and_every_other_end_leave_its_pool_alone(net):
    node, jvm = net.add("node", silence_seconds=3.0, **OPTIONS), JvmPeer(CLASSES)
    kept = jvm.add("Person", name="precious", age=1)
    link(net, node, jvm)
    stuck = link(net, node, jvm, jvm_dials=False)
    net.run(1)
    stuck.transport.write(b"\0\0\0\0\x05spoilt")
    net.run(1)
    assert closings(node)[0][0] == "protocol"
    node.network.close_all(CloseReason("stopped", "this node is stopping"))
    net.run(2)
    assert (set(jvm.objects), len(jvm.classes), jvm.kicks_heard) == ({kept}, len(CLASSES), 0)


def test_its_own_kick_and_its_rejection_are_taken(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    kept = jvm.add("Person", name="kept", age=1)
    one = link(net, node, jvm)
    net.run(1)
    one.talk.say(op=5)
    one.talk.end("its program ends it")
    net.run(1)
    assert closings(node) == [("kicked", "the peer said KICK")]
    picky = JvmPeer(CLASSES, judge=lambda v: v == 99)
    link(net, node, picky)
    link(net, node, picky, jvm_dials=False)
    net.run(1)
    assert [kind for kind, _ in closings(node)] == ["rejected", "rejected", "kicked"]
    assert ours(node) == {kept}


@PASSPHRASES
def test_what_it_says_before_the_handshake_is_no_breach(net, passphrase):
    asked = []

    def decide(identify, address):
        asked.append(jvm.add("Person", name="while it is decided", age=1))
        return True

    node = net.add("node", passphrase=passphrase, decide=decide, **OPTIONS)
    jvm = JvmPeer(CLASSES, passphrase=passphrase)
    link(net, node, jvm)
    early = jvm.add("Person", name="early", age=1)
    net.run(2)
    assert ours(node) == set(jvm.objects) == {early, *asked}
    assert_at_peace(jvm)


def test_what_a_server_says_before_its_ok_is_no_breach(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    old = jvm.add("Person", name="old", age=1)
    link(net, node, jvm, jvm_dials=False)
    early = jvm.add("Person", name="early", age=1)
    old = jvm.set(old, "age", 2)
    net.run(2)
    assert ours(node) == set(jvm.objects) == {old, early}
    assert_at_peace(jvm)


def test_early_messages_are_kept_up_to_their_bound_and_the_rest_comes_by_initialize(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    one = link(net, node, jvm, jvm_dials=False)
    for number in range(MAX_EARLY_MESSAGES + 1):
        jvm.add("Person", name="early", age=number)
    peer = one.transport.other.protocol
    # What we have sent has not come there yet, and all of this has come here before its OK.
    most = 0
    for _ in range(200):
        net.run(0.01, step=0.001)
        most = max(most, len(peer._early))
    assert most == MAX_EARLY_MESSAGES
    net.run(2)
    assert len(jvm.objects) == MAX_EARLY_MESSAGES + 1
    assert ours(node) == set(jvm.objects)
    assert_at_peace(jvm)


def test_no_more_is_on_its_way_to_it_than_it_has_answered_for(net):
    """A JVM that is slow to answer is not sent a stream that TCP would cut within messages."""
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    one = link(net, node, jvm)
    net.run(1)
    writes = []
    transport = one.transport.other
    passed_on = transport.write
    transport.write = lambda data: (writes.append(len(data)), passed_on(data))
    one.transport.reading = False
    for number in range(400):
        node.put("Person", name="x" * 40, age=number)
    net.run(1.5)
    most = max(FOREIGN_WINDOW_BYTES, FOREIGN_WINDOW_WRITES * FOREIGN_PACKET_BYTES)
    assert 1_000 < sum(writes) <= most + 200
    one.transport.resumeProducing()
    net.run(20)
    assert ours(node) == set(jvm.objects)
    assert_at_peace(jvm)


def test_a_server_that_spoils_its_aes_handshake_is_dialled_again(net):
    node = net.add("node", passphrase="x", **OPTIONS)
    jvm = JvmPeer(CLASSES, passphrase="x")
    link(net, node, jvm, jvm_dials=False, port=1)
    early = jvm.add("Person", name="early", age=1)
    net.run(2)
    assert jvm.connections == []
    link(net, node, jvm, jvm_dials=False, port=2)
    net.run(2)
    assert ours(node) == set(jvm.objects) == {early}
    assert jvm.kicks_heard == 0


def test_a_jvm_that_dials_the_same_port_again_under_aes_is_understood(net):
    node = net.add("node", passphrase="x", **OPTIONS)
    jvm = JvmPeer(CLASSES, passphrase="x")
    one = jvm.add("Person", name="one", age=1)
    for turn in range(3):
        connection = link(net, node, jvm, port=6000)
        net.run(1)
        assert [peer.address for peer in node.network.peers()]
        one = jvm.set(one, "age", 10 + turn)
        two = node.put("Person", name="two", age=turn)
        net.run(1)
        assert ours(node) == set(jvm.objects)
        assert {one, two} <= ours(node)
        connection.transport.loseConnection()
        net.run(1)
    assert jvm.kicks_said == jvm.kicks_heard == 0


def test_a_stranger_without_the_passphrase_says_nothing_early(net):
    node = net.add("node", passphrase="x", **OPTIONS)
    stranger = JvmPeer(CLASSES)
    one = link(net, node, stranger)
    # The flag alone, and no encryption.
    one.transport.loseConnection()
    from jvm_formats import padded, write_lz4

    near, far = net.transports("stranger", node.name)
    near.protocol, far.protocol = one, AcceptFactory(node.network).buildProtocol(None)
    far.protocol.makeConnection(far)

    def say(**message):
        data = write_lz4(padded(message))
        near.write(b"\x01" + len(data).to_bytes(4, "big") + data)

    say(t=1, op=CREATION, h=1, d={"name": "mine", "age": 1})
    say(t=1, op=0, v=7)
    net.run(1)
    for number in range(1_100):
        say(t=1, op=CREATION, h=number, d={"name": "mine", "age": number})
    net.run(1)
    assert node.contents() == {}
    assert "unencrypted" in closings(node)[0][1]


@pytest.mark.parametrize("through", ["ours-JVM-ours", "JVM-ours-JVM"])
@PASSPHRASES
def test_chains(net, through, passphrase):
    aes = {"passphrase": passphrase}
    jvms = [JvmPeer(CLASSES, **aes) for _ in range(2)]
    if through == "JVM-ours-JVM":
        node = net.add("node", **aes, **OPTIONS)
        link(net, node, jvms[0])
        link(net, node, jvms[1], jvm_dials=False, port=2)
        adders = [jvms[0], jvms[1], node]
    else:
        nodes = [net.add(name, **aes, **OPTIONS) for name in ("one", "two")]
        link(net, nodes[0], jvms[0], jvm_dials=False, port=1)
        link(net, nodes[1], jvms[0], jvm_dials=False, port=2)
        adders = [*nodes, jvms[0]]
    net.run(1)
    numbers = [put(adder, f"by {index}", 0) for index, adder in enumerate(adders)]
    net.run(1)
    for turn in range(1, 6):
        for index, adder in enumerate(adders):
            # Each changes what its neighbour made.
            at = (index + 1) % len(adders)
            numbers[at] = change(adder, numbers[at], 4 * turn + index)
            net.run(0.5)
    gone = numbers.pop()
    node = next(adder for adder in adders if not isinstance(adder, JvmPeer))
    node.remove(gone)
    net.run(1)
    for adder in adders:
        held = set(adder.objects) if isinstance(adder, JvmPeer) else ours(adder)
        assert held == set(numbers)
    assert_at_peace(*jvms)


def put(where, name, age):
    add = where.add if isinstance(where, JvmPeer) else where.put
    return add("Person", name=name, age=age)


def change(where, number, age):
    if isinstance(where, JvmPeer):
        return where.set(number, "age", age)
    return where.change(number, age=age)


def test_what_another_jvm_told_it_at_its_start_is_asked_for(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    one = link(net, node, jvm)
    net.run(1)
    made = jvm.fit({"name": "of another JVM", "age": 1})
    jvm.objects[made.hash] = made
    one.talk.say(op=INITIALIZE, d={"r": True, "p": [{}]})
    net.run(4)
    assert ours(node) == {made.hash}
    assert_at_peace(jvm)
    assert [message["op"] for message in one.talk.got].count(OK) == 2


def test_one_with_an_object_that_it_cannot_write_is_asked_every_other_time(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    jvm.add("TChar", charN="a", charV="x")
    link(net, node, jvm, jvm_dials=False)
    net.run(1)
    assert jvm.ends == ["unwritable"]
    # The ports of diallers are those of the far side, so this is the same address.
    net.ports -= 1
    again = link(net, node, jvm, jvm_dials=False)
    net.run(5)
    assert not again.talk.over
    number = node.put("Person", name="live", age=1)
    net.run(1)
    assert number in jvm.objects


def test_a_jvm_that_was_wiped_by_another_gets_all_again_once_it_has_its_classes(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    kept = jvm.add("Person", name="kept", age=1)
    link(net, node, jvm)
    net.run(1)
    jvm.wipe()
    jvm.ask_stores()
    link(net, node, jvm, jvm_dials=False)
    net.run(1)
    assert set(jvm.objects) == ours(node) == {kept}


def test_with_the_other_hash_rule_it_is_not_let_in_and_that_is_said(net):
    node, jvm = net.add("node"), JvmPeer(CLASSES)
    kept = jvm.add("Person", name="kept", age=1)
    link(net, node, jvm)
    link(net, node, jvm, jvm_dials=False)
    net.run(1)
    assert [kind for kind, _ in closings(node)] == ["rule", "rule"]
    assert 'hash_rule = "jvm"' in closings(node)[0][1]
    assert (ours(node), set(jvm.objects), jvm.kicks_heard) == (set(), {kept}, 0)


@PASSPHRASES
@WHO_DIALS
@pytest.mark.parametrize("seed", range(5))
def test_messages_that_it_wrote_at_once_are_all_taken(net, passphrase, jvm_dials, seed):
    node = net.add("node", passphrase=passphrase, **OPTIONS)
    jvm = JvmPeer(CLASSES, passphrase=passphrase)
    there = [jvm.add("Person", name=f"there {n}", age=n) for n in range(20)]
    one = link(net, node, jvm, jvm_dials=jvm_dials)
    net.run(4)
    assert ours(node) == set(there)
    one.hold()
    for number in there:
        jvm.set(number, "age", 1_000 + jvm.objects[number].values["age"])
    for n in range(20):
        jvm.add("TText", textN=f"new {n}", textV="x" * (10 * n * n))
    one.release(random.Random(seed), most=5)
    net.run(4)
    assert ours(node) == set(jvm.objects)
    assert (len(ours(node)), closings(node)) == (40, [])
    assert_at_peace(jvm)


def test_a_stream_that_makes_no_sense_is_left_without_kick(net):
    node, jvm = net.add("node", **OPTIONS), JvmPeer(CLASSES)
    kept = jvm.add("Person", name="kept", age=1)
    one = link(net, node, jvm)
    net.run(1)
    one.transport.write(b"\0\0\0\0\0\x76\0\0\0\x73" + b"\x09" * 0x80)
    net.run(1)
    assert closings(node)[0][0] == "protocol"
    assert (set(jvm.objects), jvm.kicks_heard) == ({kept}, 0)


def test_object_set_does_not_guess_the_hash_of_an_undeclared_type(net):
    node, jvm = net.add("node", rule=HashRule.JVM), JvmPeer(CLASSES)
    link(net, node, jvm)
    number = jvm.add("Pair", left=1, right=2)
    riap = jvm.add("Q", question=3)
    net.run(1)
    with pytest.raises(ObjectError, match="declare the type"):
        fired(node.pool.change_fields(number, {"left": 3}))
    node.pool.types.declare(next(one for one in DECLARED if one.name == "Pair"))
    node.pool.types.declare(next(one for one in DECLARED if one.name == "Q"))
    number = node.change(number, left=3)
    with pytest.raises(ObjectError, match="its hash is not what the declaration"):
        fired(node.pool.change_fields(riap, {"question": 4}))
    net.run(1)
    assert number in jvm.objects


def test_a_type_that_is_declared_late_gives_the_objects_there_their_hashes(net):
    node, kin, jvm = net.add("node", rule=HashRule.JVM), net.add("kin"), JvmPeer(CLASSES)
    net.connect(kin, node)
    number = jvm.add("Person", name="Zoë", age=7)
    one = link(net, node, jvm)
    net.run(1)
    assert ours(node) != {number}
    assert sum(peer.untyped for peer in node.network.peers()) == 1
    fired(node.pool.declare(next(one for one in DECLARED if one.name == "Person")))
    one.transport.loseConnection()
    net.run(1)
    link(net, node, jvm)
    net.run(1)
    assert ours(node) == ours(kin) == set(jvm.objects) == {number}
    number = jvm.set(number, "age", 8)
    net.run(1)
    assert ours(node) == ours(kin) == {number}
    # What is kept is there after a start.
    node.network.close_all(CloseReason("stopped", "the node starts anew"))
    net.clock.advance(20)
    node.store.close()
    node.open()
    assert [str(one) for one in node.pool.types.declarations()] == ["Person(String name, int age)"]


def test_objects_of_undeclared_types_are_passed_on_with_the_hash_of_their_class(net):
    node = net.add("node", rule=HashRule.JVM)
    one, two = JvmPeer(CLASSES), JvmPeer(CLASSES)
    link(net, node, one)
    link(net, node, two, jvm_dials=False, port=2)
    net.run(1)
    number = one.add("Q", question=-1)
    net.run(1)
    number = two.set(number, "question", 128)
    net.run(1)
    assert set(one.objects) == set(two.objects) == ours(node) == {number}
