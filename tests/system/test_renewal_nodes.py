"""Real nodes: a link that ends is renewed over the connection, by hand and by itself."""

from __future__ import annotations

import time

from nodes import wait_until

RETRY = "[sync]\nretry_first = 0.1\n"


def ends(node, feed: bytes) -> float:
    """When a node may write no more, 0: it may not."""
    with node.client() as client:
        chain = client.feed(feed.hex())["chain"]
    return chain["expires"] if chain is not None else 0.0


def renewed_member(nodes, owner):
    """A member whose link was renewed, and a moment at which its first link has ended.

    On a busy machine the first link may end before the two have met: then there is a longer one.
    """
    for seconds in (7, 120):
        member = nodes.make(f"member-{seconds}", config=RETRY).start()
        line = owner.command("invite", member.key.hex(), "--expires", f"{seconds}s").stdout
        first_end = time.time() + seconds
        if member.command("join", "-", stdin=line).returncode == 0:
            longer = first_end + 600
            wait_until(
                lambda node=member, longer=longer: not 0 < ends(node, owner.key) < longer,
                seconds,
                "the link is renewed, or over",
            )
            if ends(member, owner.key):
                return member, first_end
    raise AssertionError("no link lasted until the two nodes had met")


def test_a_member_goes_on_writing_after_the_end_of_its_first_link(nodes):
    config = f'{RETRY}[trust]\nrenew_links = true\nrenew_for = "2h"\n'
    owner = nodes.make("owner", config=config).start()
    member, first_end = renewed_member(nodes, owner)
    wait_until(lambda: time.time() > first_end + 1, 120, "the first link has ended")
    member.wait_for_peers(owner.key, 1)
    member.put(b"after the end", feed=owner.key)
    owner.wait_for_count(owner.key, 1)
    assert "has renewed its link" in member.log_path.read_text()
    assert "its link is renewed until" in owner.log_path.read_text()


def test_without_the_setting_the_operator_renews_and_the_member_has_it_at_once(nodes):
    owner = nodes.make("owner", config=RETRY).start()
    member = nodes.invited(owner, "member", expires="1h", config=RETRY)
    member.wait_for_peers(owner.key, 1)
    before = ends(member, owner.key)
    assert "renewed" not in owner.log_path.read_text()
    done = owner.command("trust", "renew", member.key.hex(), "--expires", "10d")
    assert done.returncode == 0, done.stderr
    assert b"may write until" in done.stdout
    assert b"it is connected and has the new link now" in done.stderr
    wait_until(lambda: ends(member, owner.key) > before + 86_400, 30, "the member has it")
    shown = member.command("trust", "show", "--feed", owner.key.hex())
    assert b"in 10d" in shown.stdout or b"in 9d" in shown.stdout
