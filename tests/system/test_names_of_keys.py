"""Real nodes, by the command: keys by name and beginning, invitations that nobody has used yet."""

from __future__ import annotations

import json

from nodes import wait_until

from hyperbloom.keys import Identity

STRANGER = Identity(b"never comes".ljust(32)).public_key.hex()


def run(node, *command, code=0, stdin=None):
    done = node.command(*command, stdin=stdin)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stdout.decode()


def refused(node, code, *command):
    done = node.command(*command)
    assert (done.returncode, done.stdout) == (code, b""), (done.returncode, done.stderr)
    return done.stderr.decode()


def who_may_write(node):
    """Keys by whether they were invited and have not come."""
    with node.client() as client:
        return {one["key"]: one["invited_at"] is not None for one in client.members()}


def test_a_member_is_invited_named_put_out_and_let_in(nodes):
    owner = nodes.make("owner", feed="main").start()
    member = nodes.make("member", feed="notes").start()
    own_key, key, feed = run(owner, "key").strip(), run(member, "key").strip(), owner.feed_key

    # One's own key, and somebody's that nobody here has ever seen.
    assert "prints it there" in refused(owner, 1, "invite", own_key)
    assert "give all 64 digits" in refused(owner, 8, "invite", key[:16])

    line = owner.command("invite", key, "--name", "Zo\u00eb")
    assert f"the invitation to main is for Zo\u00eb ({key})" in line.stderr.decode()
    with owner.client() as client:
        client.invite(STRANGER, expires=4e9)
    assert who_may_write(owner) == {feed.hex(): False, key: True, STRANGER: True}
    assert json.loads(run(owner, "trust", "show", "--json"))["invited"] == 2
    assert "main: 2 invitations not used here yet" in run(owner, "status")
    joined = run(member, "join", "-", "--inviter", "the boss", "--alias", "main", stdin=line.stdout)
    assert f"Invited by the boss ({feed.hex()[:16]})." in joined
    owner.wait_for_peers(feed, 1)
    wait_until(lambda: not who_may_write(owner)[key], 30, "the member has come")
    assert who_may_write(owner)[STRANGER]

    run(member, "put", "--feed", "main", "one")
    owner.wait_for_count(feed, 1)
    assert run(owner, "values", "--by", "zo\u00cb") == "one\n"
    assert json.loads(run(owner, "watch", "--existing", "--count", "1", "--json"))[
        "origin_name"
    ] == ("Zo\u00eb")
    assert [peer["name"] for peer in owner.peers()] == ["Zo\u00eb"]
    assert run(member, "peers").splitlines()[1].split("\t")[-1] == "the boss"

    told = run(owner, "forget", "--by", key[:16], "--yes")
    assert told == f"1 forgotten in main, 3 bytes, brought by Zo\u00eb ({key})\n"
    assert run(owner, "trust", "deny", "Zo\u00eb") == f"Zo\u00eb ({key}) is denied\n"
    assert "that is denied begins with" in refused(owner, 8, "trust", "allow", STRANGER[:16])
    assert run(owner, "trust", "allow", key[:16]) == f"Zo\u00eb ({key}) is allowed\n"

    # Names and what is pending outlive the process, and a name goes as it came.
    assert owner.stop()
    owner.start()
    assert who_may_write(owner) == {feed.hex(): False, key: False, STRANGER: True}
    assert run(owner, "peer", "name", "Zo\u00eb", "zoe") == (
        f"{key} is called zoe, and no longer Zo\u00eb\n"
    )
    assert run(owner, "peer", "unname", "zoe") == f"{key} was called zoe\n"
    assert "no key is called 'zoe'" in refused(owner, 8, "trust", "deny", "zoe")
