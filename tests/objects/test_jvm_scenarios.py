"""What the running JVM implementation was recorded to say: to the JVM played here, and to our node.

The played one must say the same as the recorded one, so that what it accepts is what the real one
accepts. Our node is told what the recorded one said, in both roles, and all that it answers must be
what the played one accepts.
"""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
from jvm_formats import Float, Unreadable, read_lz4, write_lz4
from jvm_peer import JvmClass, JvmConnection, JvmPeer
from pool_network import PoolNet
from twisted.internet.protocol import Protocol

from hyperbloom.objects.classes.declarations import Declaration
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.service import AcceptFactory, DialFactory

RECORDED = json.loads((Path(__file__).parents[1] / "vectors" / "pppp-jvm.json").read_text())
SCENARIOS = {scenario["name"]: scenario for scenario in RECORDED["scenarios"]}
CLASSES = tuple(JvmClass.of(s["class"]) for s in SCENARIOS.values() if "class" in s)
TALKS = [name for name, scenario in SCENARIOS.items() if scenario["steps"]]
#: A JVM says this first, where a scenario begins behind the handshake.
ITS_OK = bytes.fromhex(SCENARIOS["handshake-server-plain"]["steps"][1]["raw"])
SIGNALS = {0: "IDENTIFY", 1: "OK", 3: "PING", 4: "PONG", 7: "CREATION", 8: "CHANGE", 9: "REMOVAL"}


def steps_of(scenario):
    """Each step with the name of its connection."""
    for step in scenario["steps"]:
        yield step.get("connection", ""), step


def is_dialled(scenario, connection):
    """Whether the JVM dialled: it speaks first, with IDENTIFY."""
    spoken = [s for c, s in steps_of(scenario) if c == connection and "raw" in s]
    first = next((s for s in spoken if op_of(s) != 7), None)
    return first is not None and first["from"] == "jvm" and op_of(first) == 0


def op_of(step):
    decoded = step.get("decoded")
    return decoded.get("op") if isinstance(decoded, dict) else None


def value_of(form):
    """A value as it was decoded, floats of 32 bits marked."""
    match form:
        case {"$float32": x}:
            return Float(float(x))
        case {"$float64": x}:
            return float(x)
        case {"$bytes": x}:
            return bytes.fromhex(x)
        case {"$map": pairs}:
            return {value_of(key): value_of(value) for key, value in pairs}
        case dict():
            return {key: value_of(value) for key, value in form.items()}
        case list():
            return [value_of(item) for item in form]
    return form


def same(one, other):
    """Equal, NaN as well, and of the same width."""
    if isinstance(one, float) and isinstance(other, float):
        both_nan = math.isnan(one) and math.isnan(other)
        return isinstance(one, Float) == isinstance(other, Float) and (both_nan or one == other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def without_time(message):
    """A message, but for times that are of the moment, and in an order of the pool that is ours."""
    found = dict(value_of(message))
    if found.get("t", 0) > 1_600_000_000_000:
        del found["t"]
    if found["op"] == 6:
        found["d"] = {**found["d"], "p": sorted(found["d"]["p"], key=str)}
    return found


# The JVM played here


class Stage:
    """A played JVM, and what it writes on each connection."""

    def __init__(self, scenario):
        salts = [step["salt"] for _, step in steps_of(scenario) if step.get("salt")]
        name = scenario["name"]
        self.peer = JvmPeer(
            CLASSES,
            passphrase=scenario["passphrase"],
            judge=(lambda v: v == 7) if name.startswith("refuse-version") else None,
            salt=lambda: bytes.fromhex(salts[0]),
        )
        self.connections = {}
        self.heard = {}
        self.scenario = scenario
        self.port = 7_000
        if scenario["name"] == "redial-aes-new-salt":
            front = bytes.fromhex(scenario["steps"][0]["salt_in_front"])
            self.peer.filed[self.port] = {"salt": front, "agreed": True, "client": True}
        for fields in begin_with(scenario):
            made = self.peer.fit(fields)
            self.peer.objects[made.hash] = made
        for name, step in steps_of(scenario):
            if name not in self.connections and step["from"] != "program":
                early = "early" in scenario["name"]
                if early or "before" in scenario or name in ("A", "B") or not name:
                    self.connect(name)

    def connect(self, name):
        self.port += "redial" not in self.scenario["name"]
        self.heard[name] = heard = []
        original = JvmConnection.say

        class Listening(JvmConnection):
            def say(self, **message):
                if not self.over:
                    try:
                        form = (
                            {**message, "d": message["d"]()}
                            if callable(message.get("d"))
                            else message
                        )
                    except Exception:
                        form = None
                    if form is not None:
                        heard.append(json_free(form))
                original(self, **message)

        self.connections[name] = Listening(
            self.peer, lambda parts: None, lambda: None,
            dialled=is_dialled(self.scenario, name), port=self.port,
        )  # fmt: skip


def json_free(message):
    return {key: value for key, value in message.items() if value is not None or key == "d"}


def begin_with(scenario):
    """The pool with which a scenario begins."""
    name = scenario["name"]
    if "before" in scenario and "there" in scenario["before"]:
        return [{"name": "there", "age": 1}]
    trio = [{"name": "Jane", "age": 41}, {"name": "Zoë", "age": 7}, {"left": 1, "right": 2}]
    if name.startswith(("initialize-client", "initialize-server", "initialize-answer-")):
        return [] if name.endswith("empty") else trio
    if name.startswith(("initialize-empty-to", "initialize-partly", "initialize-forwarded")):
        return [{"name": "Otto", "age": 42}]
    if name.startswith(("no-handshake", "early-client")):
        early = [{"name": "early", "age": 2}]
        return (
            early if name.startswith("early") else [*early, {"name": "early, dialling", "age": 3}]
        )
    if name.startswith("kick-by-jvm"):
        return [{"name": "new", "age": 2}]
    if name.startswith("kick"):
        return [{"name": "precious", "age": 1}]
    if name in ("rejected-client", "wrong-flag-server-plain", "end-of-stream-server"):
        return [{"name": "after the rejection", "age": 1}]
    return []


def feed(connection, data, cuts=()):
    """Bytes that arrive in pieces; each read gets what has arrived of what it asks for."""
    edges = [0, *cuts, len(data)]
    for start, end in itertools.pairwise(edges):
        piece = data[start:end]
        while piece and not connection.over:
            wanted = connection.wanted()
            connection.took(piece[:wanted])
            piece = piece[wanted:]


#: A char in the pool, and texts of many lengths, which have tests of their own.
UNPLAYED = {"initialize-unsendable", "padding"}


@pytest.mark.parametrize("name", [name for name in TALKS if name not in UNPLAYED])
def test_the_played_jvm_says_what_the_recorded_one_said(name):
    scenario = SCENARIOS[name]
    stage = Stage(scenario)
    peer = stage.peer
    cursor = dict.fromkeys(stage.heard, 0)
    for connection_name, step in steps_of(scenario):
        if step["from"] == "program":
            play(stage, step)
            continue
        known = stage.connections.get(connection_name)
        if known is None or (known.over and step["from"] == "other" and op_of(step) == 0):
            stage.connect(connection_name)
            cursor[connection_name] = 0
        connection = stage.connections[connection_name]
        if step.get("event") == "closes" and step["from"] == "jvm":
            if not connection.over and "class" in scenario:
                peer.add(scenario["class"]["name"], **value_of(scenario["instances"][0]["values"]))
            assert connection.over
        elif step.get("event") == "closes its sending side":
            connection.took(b"")
        elif step.get("event") == "dials again":
            stage.connect(connection_name)
            cursor[connection_name] = 0
        elif step.get("event"):
            connection.end("the other closes")
        elif step["from"] == "other":
            feed(connection, bytes.fromhex(step["raw"]), step.get("cuts", ()))
        else:
            heard = stage.heard[connection_name]
            if cursor[connection_name] == len(heard):
                said_by_program(peer, step["decoded"])
            assert cursor[connection_name] < len(heard), step["decoded"]
            said = without_time(heard[cursor[connection_name]])
            expected = without_time(step["decoded"])
            said = {key: value for key, value in said.items() if key in expected or key != "t"}
            assert same(said, expected), (said, expected)
            cursor[connection_name] += 1
    if "ends_connection" in scenario:
        assert stage.connections["A"].over == scenario["ends_connection"]


def play(stage, step):
    """What the program did."""
    peer, does = stage.peer, step["does"]
    if does == "adds an object":
        person = {"50736e01bfd7e4b1": ("early", 2), "50736e01e745f051": ("early, dialling", 3)}
        text, age = person[step["hash"]]
        assert f"{peer.add('Person', name=text, age=age):016x}" == step["hash"]
    elif does.startswith("sets "):
        number = signed(step["before"])
        if number in peer.objects:
            changed = peer.set(number, does[5:], value_of(step["value"]))
            assert changed == signed(step["after"])
    elif does == "removes":
        if signed(step["hash"]) in peer.objects:
            peer.remove(signed(step["hash"]))
    elif does == "asks for its stores":
        peer.ask_stores()
    for found in step.get("pool", ()):
        assert signed(found["hash"]) in peer.objects, (found, peer.pool())
    if does == "list" and "pool" in step and not step["pool"]:
        assert peer.pool() == {}


def said_by_program(peer, decoded):
    """What the recorded JVM said because its program did something that is not in the steps."""
    form = value_of(decoded)
    match form["op"]:
        case 7:
            cls = peer.fit_names(form["d"])
            peer.add(cls.name, **form["d"])
        case 8:
            ((name, value),) = form["d"].items()
            peer.set(form["oh"], name, value)
        case 9:
            if form["h"] in peer.objects:
                peer.remove(form["h"])
            else:
                for connection in peer.connections:
                    connection.say(op=9, h=form["h"])
        case 3 | 5:
            for connection in list(peer.connections):
                connection.say(op=form["op"])
                if form["op"] == 5:
                    connection.end("its program ends it")


def signed(text):
    return int.from_bytes(bytes.fromhex(text), "big", signed=True)


@pytest.mark.parametrize("name", [n for n, s in SCENARIOS.items() if "taken" in s])
def test_the_played_jvm_takes_and_names_what_the_recorded_one_did(name):
    scenario = SCENARIOS[name]
    peer = JvmPeer(CLASSES)
    cls = next(cls for cls in CLASSES if cls.name == scenario["class"]["name"])
    for instance in scenario["instances"]:
        values = {**cls.begin(), **value_of(instance["values"])}
        if not {"TNested"} & {cls.name}:
            assert cls.hash(values) == instance["signed"]
    for taken in scenario["taken"]:
        instance = scenario["instances"][taken["instance"]]
        connection = JvmConnection(peer, lambda parts: None, lambda: None, dialled=False, port=1)
        raw = [
            step for _, step in steps_of(scenario)
            if step["from"] == "other" and "raw" in step and step["decoded"]["op"] == 7
            and step["decoded"]["h"] == instance["signed"]
        ]  # fmt: skip
        feed(connection, bytes.fromhex(raw[0]["raw"]))
        assert connection.over == taken["connection_ended"]
        assert (instance["signed"] in peer.objects) == taken["same_hash"]
        for found in taken.get("there", ()):
            assert signed(found["hash"]) in peer.objects
        peer.objects.clear()


def test_the_played_jvm_reads_and_writes_lz4_as_the_recorded_one():
    for form in SCENARIOS["lz4-frames"]["frames"]:
        if isinstance(form["plain"], str):
            plain = bytes.fromhex(form["plain"])
            assert read_lz4(bytes.fromhex(form["frame"])) == plain
            assert int.from_bytes(write_lz4(plain)[-4:], "little") == form["content_checksum"]
    for form in SCENARIOS["lz4-reading"]["frames"]:
        if "behind" in form["name"] or "skippable" in form["name"]:
            continue  # nobody sends such
        frame = bytes.fromhex(form["frame"])
        if form["error"] is not None:
            with pytest.raises(Unreadable):
                read_lz4(frame)
        elif form["reads"] == form["plain"]:
            assert read_lz4(frame) == bytes.fromhex(form["plain"])


# Our node


DECLARED = []
for one in CLASSES:
    try:
        DECLARED.append(
            Declaration.parse(
                f"{one.name}({', '.join(f'{k.partition(chr(60))[0]} {n}' for n, k in one.fields)})"
            )
        )
    except ValueError:
        continue


class Played(Protocol):
    """The recorded JVM's end of one connection: says its bytes, and has our answers judged."""

    def __init__(self, scenario, *, dialled):
        self.judge = JvmPeer(CLASSES, passphrase=scenario["passphrase"])
        self.reader = JvmConnection(
            self.judge, lambda parts: None, lambda: None, dialled=dialled, port=1
        )
        self.lost = False

    def dataReceived(self, data):
        while data and not self.reader.over:
            wanted = self.reader.wanted()
            self.reader.took(data[:wanted])
            data = data[wanted:]

    def connectionLost(self, reason=None):
        self.lost = True

    def say(self, step):
        if step.get("salt") and self.reader.aes is not None:
            self.reader.aes.update(salt=bytes.fromhex(step["salt"]), agreed=True)
        elif step.get("salt_in_front") and self.reader.aes is not None:
            self.reader.aes.update(salt=bytes.fromhex(step["salt_in_front"]), agreed=True)
        self.transport.write(bytes.fromhex(step["raw"]))


#: What our node has to refuse: another flag, another passphrase, a handshake that the JVM spoilt.
REFUSED = {
    "wrong-flag-server-plain", "wrong-flag-server-aes", "wrong-passphrase-client",
    "wrong-passphrase-server", "early-server-aes", "wrong-flag-later-server-aes",
}  # fmt: skip


@pytest.mark.parametrize("name", TALKS)
def test_our_node_takes_what_the_jvm_says_and_answers_what_it_accepts(tmp_path, name):
    scenario = SCENARIOS[name]
    net = PoolNet(tmp_path)
    given = [s["salt"] for _, s in steps_of(scenario) if s.get("salt") and s["from"] == "other"]
    node = net.add(
        "node",
        passphrase=scenario["passphrase"],
        rule=HashRule.JVM,
        declared=DECLARED,
        salts=map(bytes.fromhex, given),
    )
    ours = {}
    expected, ended = {}, {}
    for connection, step in steps_of(scenario):
        if step["from"] != "jvm" or "raw" not in step:
            continue
        if connection not in ours:
            ours[connection] = join(net, node, scenario, connection)
        played = ours[connection]
        if not played.lost and node_takes(node, played):
            played.say(step)
            net.run(0.3)
            learn(expected, ended, step["decoded"])
    net.run(3)
    if name not in REFUSED:
        kinds = {status.kind for status in node.network.recently_closed}
        assert kinds <= {"kicked", "rejected"}, node.network.recently_closed
        assert set(node.contents()) == set(expected)
    for played in ours.values():
        assert played.judge.kicks_heard == 0
        assert not [why for why in played.judge.ends if why.startswith("unreadable")], (
            played.judge.ends
        )
        assert not [message for message in played.reader.got if message["op"] == 6]
    net.close()


def node_takes(node, played):
    return not played.transport.other.protocol.is_lost


def join(net, node, scenario, connection):
    """A connection of our node with the recorded JVM, in the role that this had."""
    dialled = is_dialled(scenario, connection)
    played = Played(scenario, dialled=dialled)
    near, far = net.transports("jvm", node.name) if dialled else net.transports(node.name, "jvm")
    if dialled:
        near.protocol, far.protocol = played, AcceptFactory(node.network).buildProtocol(None)
        far.protocol.makeConnection(far)
        played.makeConnection(near)
    else:
        near.protocol, far.protocol = DialFactory(node.network).buildProtocol(None), played
        played.makeConnection(far)
        near.protocol.makeConnection(near)
        first = next(s for c, s in steps_of(scenario) if c == connection and s["from"] == "jvm")
        begins = first.get("decoded", {}).get("op") in (1, 2, 5) or "early" in scenario["name"]
        net.run(0.3)
        if not begins and scenario["passphrase"] is None:
            played.transport.write(ITS_OK)
            net.run(0.3)
    return played


def learn(pool, ended, message):
    """What the pool is by what a JVM says; what others say through it is of 2017, and too late."""
    form = value_of(message)
    match form["op"]:
        case 6:
            for fields in form["d"]["p"]:
                if fields:
                    made = JvmPeer(CLASSES).fit(fields)
                    pool[made.hash] = fields
        case 7:
            if form["t"] > ended.get(form["h"], 0):
                pool.setdefault(form["h"], form["d"])
        case 8 if form["oh"] in pool:
            pool[form["h"]] = {**pool.pop(form["oh"]), **form["d"]}
        case 9:
            if pool.pop(form["h"], None) is not None:
                ended[form["h"]] = form["t"]
