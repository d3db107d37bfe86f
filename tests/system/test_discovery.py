"""Nodes that know a feed's key and one node of a DHT, and no address of each other."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time

import pytest
from nodes import HYPERBLOOM, TWISTD, Nodes, RealNode, free_port, wait_until

from hyperbloom.exit_codes import ExitCode

MEMBERS = 11
FIND_SECONDS = 60.0

MERGE_OFTEN = """
[discovery.tracker.overlap_merge]
initial_delay = 1
base_interval = 1
max_jitter = 1
"""

LOOK_OFTEN = """
[discovery.swarm]
retry_interval = 1
"""


@pytest.fixture
def bootstrap_node():
    """A DHT node that only brings others together; its port."""
    process, port = start_bootstrap_node()
    yield port
    end(process)


def start_bootstrap_node() -> tuple[subprocess.Popen, int]:
    process = start_dht("bootstrap")
    return process, int(re.search(r"127\.0\.0\.1:(\d+)", process.stdout.readline())[1])


def start_dht_node(*bootstrap: str) -> subprocess.Popen:
    return start_dht("serve", *(word for address in bootstrap for word in ("--bootstrap", address)))


def start_dht(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [HYPERBLOOM, "dht", *arguments, "--port", "0", "--interface", "127.0.0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
    )


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=240)


def discovery(dht_port: int | None, **more: object) -> str:
    """The configuration of a node that finds others by a DHT node at this port.

    By the topic tracker alone: the npm packages' swarm would find them as well.
    """
    keys = {
        "enabled": True,
        "bootstrap": [f"127.0.0.1:{dht_port}"] if dht_port else [],
        "port": 0,
        "interface": "127.0.0.1",
        "lan": "off",
        "legacy": False,
    } | more
    return "[discovery]\n" + "".join(f"{key} = {json.dumps(keys[key])}\n" for key in keys)


def member_of(owner: RealNode, nodes: Nodes, name: str, config: str) -> RealNode:
    """A started node with a link from the owner, and nobody's address."""
    member = nodes.make(name, config=f'[[feeds]]\nkey = "{owner.key.hex()}"\n{config}').start()
    with owner.client() as client:
        link = client.issue_link(member.key, expires=time.time() + 86_400)
    with member.client() as client:
        client.add_links([bytes.fromhex(link["link"])], feed=owner.key.hex())
    return member


def state_of(node: RealNode, feed: bytes) -> dict:
    with node.client() as client:
        return dict(client.discovery(feed.hex()))


def found_by(node: RealNode, feed: bytes) -> list[dict]:
    return state_of(node, feed)["found"]


def refused(node: RealNode, feed: bytes) -> bool:
    tracker = state_of(node, feed)["tracker"]
    return bool(tracker and tracker["refused"])


def announced(node: RealNode) -> bool:
    lan = state_of(node, node.key)["lan"]
    return bool(lan["announced"] or lan["problem"])


def run_to_its_end(node: RealNode) -> subprocess.CompletedProcess:
    """Start a node that cannot start."""
    return subprocess.run(
        [TWISTD, "-n", "--pidfile=", "hyperbloom", "-c", str(node.config_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=node.folder,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.mark.timeout(600)
def test_two_nodes_alone_find_each_other(nodes):
    """No other node of the DHT: each holds the other's record, and nobody else has it."""
    port = free_port()
    owner = nodes.make("owner", config=discovery(None, port=port) + MERGE_OFTEN).start()
    member = member_of(owner, nodes, "member", discovery(port) + MERGE_OFTEN)
    owner.put(b"over a DHT of two")
    member.wait_for_count(owner.key, 1, 2 * FIND_SECONDS)
    for node in (owner, member):
        state = state_of(node, owner.key)
        assert (state["swarm"], state["lan"]) == (None, None)


def test_twelve_nodes_find_each_other_by_the_feeds_key(nodes, bootstrap_node) -> None:
    """That it takes no more than 30 seconds is held by the simulation, which no load slows down."""
    owner = nodes.make("owner", config=discovery(bootstrap_node)).start()
    owner.put(b"from the owner")
    members = [
        member_of(owner, nodes, f"member{number}", discovery(bootstrap_node))
        for number in range(MEMBERS)
    ]
    for number, member in enumerate(members):
        member.put(b"from member %d" % number, feed=owner.key)
    everybody = [owner, *members]
    for node in everybody:
        node.wait_for_count(owner.key, 1 + MEMBERS, FIND_SECONDS)
    assert len({node.digest(owner.key) for node in everybody}) == 1
    sources = {one["source"] for node in everybody for one in found_by(node, owner.key)}
    assert sources == {"tracker"}


def test_the_npm_packages_swarm_alone_finds_peers(nodes, bootstrap_node, tmp_path) -> None:
    """Neither reads the other's records: each seals its own to a secret of its own."""
    configs = []
    for name in ("one", "other"):
        words = tmp_path / name
        words.write_text(name)
        words.chmod(0o600)
        configs.append(discovery(bootstrap_node, secret=str(words), legacy=True) + LOOK_OFTEN)
    owner = nodes.make("owner", config=configs[0]).start()
    owner.put(b"by BEP-5")
    member = member_of(owner, nodes, "member", configs[1])
    member.wait_for_count(owner.key, 1, FIND_SECONDS)
    found = [*found_by(owner, owner.key), *found_by(member, owner.key)]
    assert {one["source"] for one in found} == {"swarm"}


def test_two_bubbles_become_one_swarm_when_their_networks_meet(nodes) -> None:
    """Two DHTs that know nothing of each other, six nodes in each; then one node joins both."""
    networks = [start_bootstrap_node() for _ in range(2)]
    configs = [discovery(port) + MERGE_OFTEN for _, port in networks]
    try:
        owner = nodes.make("owner", config=configs[0]).start()
        bubbles = [
            [owner, *(member_of(owner, nodes, f"near{n}", configs[0]) for n in range(5))],
            [member_of(owner, nodes, f"far{n}", configs[1]) for n in range(6)],
        ]
        for number, bubble in enumerate(bubbles):
            bubble[0].put(b"of bubble %d" % number, feed=owner.key)
            for node in bubble:
                node.wait_for_count(owner.key, 1, FIND_SECONDS)
        assert {node.count(owner.key) for bubble in bubbles for node in bubble} == {1}
        ports = [f"127.0.0.1:{port}" for _, port in networks]
        between = start_dht_node(*ports)
        try:
            for node in (*bubbles[0], *bubbles[1]):
                node.wait_for_count(owner.key, 2, FIND_SECONDS)
        finally:
            end(between)
    finally:
        for process, _ in networks:
            end(process)


def test_a_node_that_is_started_again_needs_no_bootstrap_node(nodes) -> None:
    process, port = start_bootstrap_node()
    try:
        owner = nodes.make("owner", config=discovery(port)).start()
        member = member_of(owner, nodes, "member", discovery(port))
        member.wait_for_peers(owner.key, 1, FIND_SECONDS)
    finally:
        end(process)
    assert member.stop()
    owner.put(b"meanwhile")
    member.start()
    member.wait_for_count(owner.key, 1, FIND_SECONDS)


def test_multicast_dns_finds_peers_without_any_dht(nodes) -> None:
    local = discovery(None, lan="on")
    owner = nodes.make("owner", config=local).start()
    owner.put(b"over the wire")
    wait_until(lambda: announced(owner), 20, "the owner is announced")
    problem = state_of(owner, owner.key)["lan"]["problem"]
    if problem:
        pytest.skip(f"no multicast on 127.0.0.1: {problem}")
    member = member_of(owner, nodes, "member", local)
    member.wait_for_count(owner.key, 1, FIND_SECONDS)
    (found,) = found_by(member, owner.key)
    assert (found["source"], found["state"], found["key"]) == ("lan", "joined", owner.key.hex())


def test_discover_shows_what_is_asked_found_and_joined(nodes, bootstrap_node) -> None:
    config = discovery(bootstrap_node)
    owner = nodes.make("owner", config=config).start()
    owner.put(b"x")
    member = member_of(owner, nodes, "member", config)
    shown = member.command("discover", owner.key.hex(), "--until-joined", "--timeout", "60s")
    assert shown.returncode == 0, shown.stderr
    text = shown.stdout.decode()
    assert re.search(r"tracker: asked \d+ nodes, \d+ answered", text)
    assert "feed: a peer is connected" in text
    # Either has found the other by a record; who did dials.
    trackers = [
        json.loads(node.command("status", "--json").stdout)["discovery"]["feeds"][0]["tracker"]
        for node in (owner, member)
    ]
    assert sum(tracker["records_seen"] for tracker in trackers) >= 1
    assert all(tracker["lookup_answered"] >= 1 for tracker in trackers)
    joined = [one for node in (owner, member) for one in found_by(node, owner.key)]
    assert [one["source"] for one in joined if one["state"] == "joined"] == ["tracker"]
    late = member.command("discover", owner.key.hex(), "--timeout", "1s")
    assert late.returncode == ExitCode.TIMEOUT
    assert b"Traceback" not in late.stderr


def test_discover_says_that_discovery_is_off(nodes) -> None:
    node = nodes.make("quiet").start()
    shown = node.command("discover", "--timeout", "5s")
    assert shown.returncode == ExitCode.FAILED
    assert b"discovery is off; set enabled = true" in shown.stderr
    assert "off" in node.command("status").stdout.decode()


def test_a_taken_udp_port_is_said_in_one_sentence(nodes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        node = nodes.make("node", config=discovery(None, port=port))
        done = run_to_its_end(node)
    assert done.returncode == ExitCode.BUSY
    last = done.stdout.splitlines()[-1]
    assert f"cannot listen on UDP port {port}" in last
    assert "port under [discovery]" in last


def test_only_who_has_the_passphrase_reads_the_records(nodes, bootstrap_node, tmp_path) -> None:
    words = tmp_path / "words"
    words.write_text("correct horse\n")
    words.chmod(0o600)
    private = discovery(bootstrap_node, secret=str(words))
    owner = nodes.make("owner", config=private).start()
    owner.put(b"among us")
    stranger = member_of(owner, nodes, "stranger", discovery(bootstrap_node))
    member = member_of(owner, nodes, "member", private)
    member.wait_for_count(owner.key, 1, FIND_SECONDS)
    wait_until(lambda: refused(stranger, owner.key), FIND_SECONDS, "the stranger saw a record")
    assert stranger.count(owner.key) == 0
    assert found_by(stranger, owner.key) == []


def test_a_passphrase_file_that_others_may_read_is_refused(nodes, tmp_path) -> None:
    words = tmp_path / "words"
    words.write_text("correct horse\n")
    words.chmod(0o644)
    done = run_to_its_end(nodes.make("node", config=discovery(None, secret=str(words))))
    assert done.returncode == ExitCode.CONFIG
    assert "chmod 600" in done.stdout.splitlines()[-1]
