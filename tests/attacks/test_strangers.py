"""Strangers: who knows addresses and the feed's key and has no link shuts nobody out."""

from __future__ import annotations

import contextlib
import os
import resource
from pathlib import Path

import pytest
from attacker import Connection, Ended, KeyPair
from nodes import wait_until
from strangers import KINDS, Strangers

AT_ONCE = "[sync]\nretry_first = 0.2\nretry_longest = 0.5\n"
#: The one from which nodes on this machine dial.
NODES_ADDRESS = "127.0.0.1"
#: What the system would give a process that asks for it.
LIMIT_OF_FILES = 8_192


def resident_bytes(node) -> int:
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) * 1024


def junk(node, count, source=NODES_ADDRESS):
    for _ in range(count):
        with (
            contextlib.suppress(Ended, OSError),
            Connection.dial((NODES_ADDRESS, node.port), source=source) as wire,
        ):
            wire.write(os.urandom(256))
            wire.wait_for_end()


def test_junk_from_an_address_shuts_nobody_out_who_has_the_same(nodes):
    dialled = nodes.make("dialled")
    owner = nodes.make("owner")
    owner.config_path.write_text(
        f'{owner.config_path.read_text()}[[feeds]]\nkey = "{owner.key.hex()}"\n'
        f'peers = ["{dialled.address}"]\n{AT_ONCE}'
    )
    owner.start()
    junk(owner, 12)
    dialled.start()
    link = owner.command("invite", dialled.key.hex(), "--expires", "1d", "--address", "127.0.0.1:1")
    dialled.command("join", link.stdout.decode().strip())
    dialler = nodes.invited(owner, "dialler", config=AT_ONCE)
    for member in (dialled, dialler):
        wait_until(
            lambda key=member.key: key.hex() in {peer["key"] for peer in owner.peers()},
            30,
            f"{member.folder.name} is connected",
        )
    ways = {peer["key"]: peer["outgoing"] for peer in owner.peers()}
    assert ways == {dialled.key.hex(): True, dialler.key.hex(): False}


@pytest.mark.parametrize("kind", ["silent", "dripping"])
def test_strangers_do_not_crowd_out_a_member_of_their_own_address(nodes, kind):
    owner = nodes.make("owner").start()
    crowd = Strangers(
        owner.port, owner.key, 150, kinds=(kind,), sources=(NODES_ADDRESS,), renewal=0.1
    )
    with crowd:
        wait_until(lambda: crowd.ended > 118, 30, "the node has ended what was too many")
        member = nodes.invited(owner, "member", config=AT_ONCE)
        owner.wait_for_peers(owner.key, 1, 8)
        member.put(b"through the crowd", feed=owner.key)
        owner.wait_for_count(owner.key, 1, 8)


def test_strangers_of_many_addresses_do_not_crowd_out_members(nodes):
    owner = nodes.make("owner", config="[limits]\nconnections = 40\n").start()
    with Strangers(owner.port, owner.key, 98, kinds=("silent",)) as crowd:
        wait_until(lambda: crowd.ended > 58, 30, "the node has ended what was too many")
        member = nodes.invited(owner, "member", config=AT_ONCE)
        owner.wait_for_peers(owner.key, 1, 8)
        member.put(b"through the crowd", feed=owner.key)
        owner.wait_for_count(owner.key, 1, 8)


def test_strangers_do_not_use_up_what_the_node_may_open(nodes):
    owner = nodes.make("owner")
    owner.start(
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (200, LIMIT_OF_FILES))
    )
    with Strangers(owner.port, owner.key, 400, kinds=("opened",)) as crowd:
        wait_until(lambda: crowd.opened >= 400, 30, "all strangers have come")
        member = nodes.invited(owner, "member", config=AT_ONCE)
        owner.wait_for_peers(owner.key, 1, 8)
        member.put(b"through the crowd", feed=owner.key)
        owner.wait_for_count(owner.key, 1, 8)


def test_one_key_has_a_share_of_the_connections(nodes):
    owner = nodes.make("owner").start()
    member, wires = KeyPair.random(), []
    with owner.client() as client:
        link = bytes.fromhex(client.issue_link(member.public, expires=4_000_000_000)["link"])
    try:
        for number in range(20):
            wires.append(
                Connection.dial((NODES_ADDRESS, owner.port), source=f"127.66.1.{number + 1}")
            )
            wires[-1].shake_hands(owner.key, member, [link])
        wait_until(
            lambda: len(owner.peers()) == 4,
            10,
            f"the member has 4 connections, not {len(owner.peers())}",
        )
        honest = nodes.invited(owner, "honest", config=AT_ONCE)
        wait_until(
            lambda: honest.key.hex() in {peer["key"] for peer in owner.peers()}, 30, "the honest"
        )
    finally:
        for wire in wires:
            wire.close()


@pytest.mark.parametrize(("kinds", "count"), [(KINDS, 400), (("huge",), 300)])
def test_what_strangers_leave_behind_is_little(nodes, kinds, count):
    owner = nodes.make("owner").start()
    owner.put(b"a value")
    before, logged = resident_bytes(owner), owner.log_path.stat().st_size
    seen = [before]

    def is_over() -> bool:
        seen.append(resident_bytes(owner))
        return crowd.ended >= 1_200

    with Strangers(owner.port, owner.key, count, kinds=kinds) as crowd:
        wait_until(is_over, 90, "the node has ended 1,200 connections", longest_pause=0.02)
    assert owner.put(b"another") == 1
    with owner.client() as client:
        wait_until(lambda: client.status()["connections"] == 0, 30, "all are gone")
    most, left = max(seen) - before, resident_bytes(owner) - before
    told = owner.log_path.stat().st_size - logged
    print(f"memory +{most >> 20} MB, after it +{left >> 20} MB, log {told:,} B")
    assert most < 40_000_000
    assert told < 20_000
