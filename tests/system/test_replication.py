"""Real twistd nodes on loopback: what a user sees of replication."""

from __future__ import annotations

import os
import random

from nodes import wait_until


def test_an_invited_member_gets_everything_in_exact_order(nodes):
    owner = nodes.make("owner").start()
    numbers = random.Random(1)
    values = {numbers.randbytes(numbers.randint(1, 80)) for _ in range(5_000)}
    values |= {bytes([byte]) for byte in range(256)}
    values |= {numbers.randbytes(200 * 1024), b"\xff" * 261_000, b"p" * 3_000 + b"a", b"p" * 3_000}
    for batch in range(0, len(values), 2_000):
        owner.put(*sorted(values)[batch : batch + 2_000])
    member = nodes.invited(owner, "member")
    member.wait_for_count(owner.key, len(values), 60)
    assert member.values(owner.key) == sorted(values)
    assert member.digest(owner.key) == owner.digest(owner.key)


def test_values_travel_through_a_node_in_the_middle(nodes):
    owner = nodes.make("owner").start()
    one = nodes.invited(owner, "one")
    two = nodes.invited(owner, "two")
    two.put(b"from two", feed=owner.key)
    one.wait_for_count(owner.key, 1)
    one.put(b"from one", feed=owner.key)
    two.wait_for_count(owner.key, 2)
    assert owner.values() == [b"from one", b"from two"]


def test_what_was_put_while_a_peer_was_away_arrives_when_it_is_back(nodes):
    owner = nodes.make("owner", config="[sync]\nretry_first = 0.1").start()
    member = nodes.invited(owner, "member", config="[sync]\nretry_first = 0.1")
    owner.put(b"before")
    member.wait_for_count(owner.key, 1)
    assert owner.stop()
    member.put(b"while the owner was away", feed=owner.key)
    owner.start()
    owner.wait_for_count(owner.key, 2)
    member.kill()
    owner.put(b"while the member was away")
    member.start()
    member.wait_for_count(owner.key, 3)


def test_a_member_of_a_member_writes_and_gets_a_shorter_chain(nodes):
    owner = nodes.make("owner").start()
    member = nodes.invited(owner, "member")
    guest = nodes.make("guest").start()
    line = member.command("invite", guest.key.hex(), "--expires", "1d", "--feed", owner.key.hex())
    assert line.returncode == 0, line.stderr
    assert guest.command("join", line.stdout.decode().strip()).returncode == 0
    guest.put(b"from the guest", feed=owner.key)
    owner.wait_for_count(owner.key, 1)
    shown = member.command("trust", "show", "--feed", owner.key.hex()).stdout.decode()
    assert guest.key.hex() in shown
    dialled = guest.command("feed", "join", owner.key.hex(), "--peer", owner.address)
    assert dialled.returncode == 0, dialled.stderr

    def chain_is_short() -> bool:
        with guest.client() as client:
            (feed,) = [f for f in client.feeds() if f["key"] == owner.key.hex()]
        return feed["chain"] is not None and feed["chain"]["links"] == 1

    wait_until(chain_is_short, 20, "the owner's own link")


def test_a_link_that_runs_out_ends_the_connection_and_writing(nodes):
    owner = nodes.make("owner").start()
    member = nodes.invited(owner, "member", expires="6s", config="[sync]\nretry_first = 0.1")
    member.put(b"in time", feed=owner.key)
    owner.wait_for_count(owner.key, 1)
    owner.wait_for_peers(owner.key, 1)
    owner.wait_for_peers(owner.key, 0, 15)
    late = member.command("put", "--feed", owner.key.hex(), "late")
    assert late.returncode == 5
    assert b"expired" in late.stderr
    assert owner.values() == [b"in time"]
    status = member.command("status").stdout.decode()
    assert "expired" in status


def test_a_light_node_publishes_and_gets_what_it_asks_for(nodes):
    owner = nodes.make("owner").start()
    owner.put(*[b"%03d" % number for number in range(100)])
    line = nodes.make("light").start()
    invitation = owner.command("invite", line.key.hex(), "--expires", "1d").stdout.decode()
    joined = line.command("join", invitation.strip(), "--mode", "light")
    assert joined.returncode == 0, joined.stderr
    line.wait_for_peers(owner.key, 1)
    line.put(b"published", feed=owner.key)
    owner.wait_for_count(owner.key, 101)
    assert line.count(owner.key) == 1, "it keeps no copy"
    got = line.command("get", "--feed", owner.key.hex(), "--start", "010", "--end", "012")
    assert got.stdout == b"010\n011\n"


def test_a_range_node_keeps_its_range(nodes):
    owner = nodes.make("owner").start()
    owner.put(*[b"%03d" % number for number in range(100)])
    member = nodes.make(
        "member",
        config=f'[[feeds]]\nkey = "{owner.key.hex()}"\nmode = "range"\n'
        f'peers = ["{owner.address}"]\nranges = [{{ start = "020", end = "030" }}]',
    ).start()
    link = owner.command("trust", "issue", member.key.hex(), "--expires", "1d")
    added = member.command("trust", "add", owner.key.hex(), link.stdout.decode().strip())
    assert added.returncode == 0, added.stderr
    member.wait_for_count(owner.key, 10)
    owner.put(b"025x", b"050x")
    member.wait_for_count(owner.key, 11)
    assert member.values(owner.key)[0] == b"020"
    assert b"050x" not in member.values(owner.key)


def test_watch_prints_values_as_they_arrive(nodes):
    import subprocess

    from nodes import HYPERBLOOM

    owner = nodes.make("owner").start()
    member = nodes.invited(owner, "member")
    watching = subprocess.Popen(
        [HYPERBLOOM, "-c", str(member.config_path), "watch", "--feed", owner.key.hex()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        # Without a sign that the watch has begun: put until it shows.
        put = []

        def shown() -> bool:
            value = b"%d" % len(put)
            put.append(value)
            owner.put(value)
            os.set_blocking(watching.stdout.fileno(), False)
            return bool(watching.stdout.read())

        wait_until(shown, 20, "a watched value")
    finally:
        watching.terminate()
        watching.wait(240)
        watching.stdout.close()
        watching.stderr.close()
