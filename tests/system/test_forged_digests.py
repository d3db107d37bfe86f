"""A member gives two nodes different sets whose old digests are equal: they must not take it."""

from __future__ import annotations

from equal_sums import equal_sums
from nodes import wait_until


def test_sets_of_equal_sums_are_not_in_sync_and_converge(nodes):
    """Each node holds one of the sets when they meet, as if a member had brought it there.

    The interval is an hour, so that nothing but the comparison makes them ask for the values.
    """
    ours, theirs = equal_sums()
    rarely = "[sync]\ninterval = 3600\njitter = 0\n"
    owner = nodes.make("owner", config=rarely).start()
    member = nodes.invited(owner, "member", config=rarely)
    member.command("wait-synced", owner.key.hex(), "--feed", owner.key.hex())
    owner.stop()
    member.put(*theirs, feed=owner.key)
    member.stop()
    owner.start()
    owner.put(*ours)
    member.start()
    member.wait_for_peers(owner.key, 1)
    done = member.command(
        "wait-synced", owner.key.hex(), "--feed", owner.key.hex(), "--timeout", "60s"
    )
    assert done.returncode == 0, done.stderr
    both = sorted([*ours, *theirs])
    assert member.values(owner.key) == both, "said to be in sync, with other values"
    wait_until(lambda: owner.values() == both, 60, "the owner has all values")
    assert owner.digest(owner.key) == member.digest(owner.key)
