"""A node whose store an older version wrote: it starts at once and gets its digests meanwhile."""

from __future__ import annotations

import json

from nodes import wait_until
from older_stores import make_folder_older


def test_an_older_store_is_taken_over_and_in_sync_by_digest(nodes):
    owner = nodes.make("owner").start()
    values = [b"%06d" % number for number in range(20_000)]
    for start in range(0, len(values), 5_000):
        owner.put(*values[start : start + 5_000])
    member = nodes.invited(owner, "member")
    member.wait_for_count(owner.key, len(values))
    digest = owner.digest(owner.key)
    member.stop()
    make_folder_older(member.folder / "store")
    verified = member.command("verify", str(member.folder / "store"))
    assert verified.returncode == 0, verified.stderr
    member.start()
    assert member.count(owner.key) == len(values)
    wait_until(lambda: member.digest(owner.key) is not None, 60, "the digest is computed")
    assert member.digest(owner.key) == digest
    done = member.command(
        "wait-synced", owner.key.hex(), "--feed", owner.key.hex(), "--timeout", "60s", "--json"
    )
    assert done.returncode == 0, done.stderr
    form = json.loads(done.stdout)
    assert (form["digest"], form["digest_left"]) == (digest, 0)
    assert form["peers"][0]["source"] in {"digest", "sync"}
