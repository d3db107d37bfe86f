"""The page for a keyboard and a screen reader, in each state: axe-core, and a walk by keys.

A node that hangs or is lost is in test_page_and_node.py.
"""

from __future__ import annotations

import time

import pytest
from chromium import opened
from crowd import Crowded
from fake_node import FakeNode, a_peer

from hyperbloom.keys import Identity
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.trust import issue_link

DAY = 86_400.0
WIDTHS = {"phone": (390, 844, True), "desktop": (1280, 900, False)}
#: What has the focus, in a word, and whether it is seen.
FOCUS = """
(() => {
  const e = document.activeElement, style = getComputedStyle(e);
  const name = e.ariaLabel || e.id || e.value || e.textContent.trim().slice(0, 20);
  const line = style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth);
  return [`${e.localName}: ${name}`, line >= 1];
})()
"""


def joined(node: FakeNode, alias: str, *, days: float, members: int = 1) -> bytes:
    """A feed that was joined by a link that lasts so long."""
    owner = Identity(alias.encode().ljust(32, b"."))
    feed = node.add(FeedSettings(key=owner.public_key, alias=alias))
    for number in range(members):
        trustee = (
            node.identity.public_key if number == 0 else Identity(b"%032d" % number).public_key
        )
        link = issue_link(owner, trustee, expires=time.time() + days * DAY, nonce=bytes(32))
        feed._learn(owner.public_key, link)
    return feed.key


def idle(node: FakeNode) -> str:
    node.connected = []
    return "no peer"


def replicating(node: FakeNode) -> str:
    now, feed = time.time(), joined(node, "blocklist", days=90)
    node.feeds[feed].insert([b"%d" % number for number in range(250)])
    receiving = {"last_sync_sent": now, "last_new": now + 3_600, "in_sync": False}
    node.connected = [a_peer(feed, expected=1_000, **receiving)]
    return "replicating 25 %"


def how_much_is_not_known(node: FakeNode) -> str:
    if len(node.feeds) == 1:
        replicating(node)
    receiving = {"last_sync_sent": 1.0, "last_new": time.time() + 3_600, "in_sync": None}
    node.connected = [a_peer(node.connected[0].feed, **receiving)]
    return "replicating"


def expiring(node: FakeNode) -> str:
    joined(node, "blocklist", days=2.5, members=12)
    return "link ends in 2 d"


def expired(node: FakeNode) -> str:
    joined(node, "blocklist", days=-1)
    return "link ended"


def failing(node: FakeNode) -> str:
    node.broken_store = "the disk is full; make room"
    return "store fails"


STATES = (idle, replicating, how_much_is_not_known, expiring, expired, failing)


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_no_state_of_the_page_violates_a_rule(chromium, axe, over_tcp, state):
    word = state(over_tcp.node)
    chromium.size(*WIDTHS["desktop"][:2])
    opened(chromium, over_tcp)
    assert chromium.eval("document.title").startswith(f"{word} · ")
    chromium.wait("document.querySelectorAll('#charts figure').length === 8")
    chromium.eval("document.querySelector('details').open = true")
    for width, scheme in (("desktop", "light"), ("phone", "dark")):
        wide, high, mobile = WIDTHS[width]
        chromium.size(wide, high, mobile=mobile)
        chromium.scheme(scheme)
        assert chromium.violations(axe) == [], (width, scheme)
        assert chromium.eval("document.documentElement.scrollWidth <= innerWidth"), width
    assert chromium.complaints() == []


def test_a_crowd_and_the_door_violate_none_either(chromium, axe, reactor_thread):
    served = Crowded(reactor_thread, feeds=12, peers=60)
    try:
        opened(chromium, served)
        chromium.wait("!!document.querySelector('#graph .more')")
        assert chromium.violations(axe) == []
        chromium.eval("sessionStorage.clear()")
        chromium.go(f"{served.url}/#" + "x" * 43)
        chromium.wait("document.querySelector('#door')?.hidden === false")
        assert chromium.violations(axe) == []
    finally:
        served.close()


def test_how_far_a_feed_is_and_how_long_it_takes(chromium, over_tcp):
    replicating(over_tcp.node)
    opened(chromium, over_tcp)
    cell = "[...document.querySelector('#feeds tbody tr').cells].at(-1).textContent"
    assert chromium.eval(cell) == "250 of 1,000 (25 %)"
    feed = over_tcp.node.feeds[over_tcp.node.connected[0].feed]
    feed.insert([b"more %d" % number for number in range(250)])
    chromium.wait(f"{cell}.startsWith('500 of 1,000 (50 %), about ')")
    feed.insert([b"own %d" % number for number in range(501)])
    chromium.wait(f"{cell} === 'all known has come; comparing'")
    how_much_is_not_known(over_tcp.node)
    chromium.wait(f"{cell} === 'replicating, how much is not known'")


def test_the_busiest_feed_comes_first_and_is_open(chromium, over_tcp):
    node = over_tcp.node
    quiet, busy = joined(node, "quiet", days=90), joined(node, "busy", days=90)
    node.connected = [a_peer(quiet)]
    over_tcp.call(over_tcp.service.context.history.look)
    node.feeds[busy].insert([b"a"])
    over_tcp.call(over_tcp.service.context.history.look)
    opened(chromium, over_tcp)
    rows = "[...document.querySelectorAll('#feeds tbody tr')].map((r) => r.cells[0].textContent)"
    assert chromium.eval(rows) == ["busy", "quiet", "own"]
    assert chromium.eval("document.querySelector('#feed-name').textContent").startswith("busy (")
    chromium.wait("document.querySelectorAll('#charts path').length > 0")
    said = chromium.eval(
        "[...document.querySelectorAll('#charts svg')].map((one) => one.getAttribute('aria-label'))"
    )
    assert "values: now 1, 0 to 1" in said


def test_names_are_shown_in_place_of_keys_and_who_has_not_come(chromium, axe, over_tcp):
    node = over_tcp.node
    feed = joined(node, "blocklist", days=90, members=3)
    known, invited = (Identity(b"%032d" % number).public_key for number in (1, 2))
    node.names.by_key = {known: "Ada <b>of</b> the field team", node.identity.public_key: "here"}
    node.feeds[feed].invited = lambda: {invited: time.time() - 2 * DAY}
    node.connected = [a_peer(feed, key=known)]
    opened(chromium, over_tcp)
    chromium.wait("document.querySelectorAll('#graph circle').length === 4")
    peer = "document.querySelector('#peers tbody tr').cells[0].textContent"
    assert chromium.eval(peer) == "Ada <b>of</b> the field team"
    said = chromium.eval(
        "[...document.querySelectorAll('#graph [role=listitem]')].map((one) => one.ariaLabel)"
    )
    assert any(f"Ada <b>of</b> the field team, {known.hex()}" in one for one in said)
    assert any(invited.hex() in one and "invited 2 d ago, not seen yet" in one for one in said)
    told = "Invited by this node and not seen yet: 1"
    assert chromium.eval("document.querySelector('#invited').textContent") == told
    assert chromium.eval("document.querySelectorAll('#detail b').length") == 0
    assert chromium.violations(axe) == []


def test_all_of_it_can_be_done_by_keys(chromium, over_tcp):
    first, second = joined(over_tcp.node, "first", days=90, members=12), over_tcp.node.own.key
    over_tcp.node.connected = [a_peer(first), a_peer(first, id=b"x" * 32), a_peer(second)]
    chromium.size(1280, 900)
    opened(chromium, over_tcp)
    chromium.wait("!!document.querySelector('#graph .more')")
    reached: list[str] = []
    while True:
        chromium.press("Tab")
        name, seen = chromium.eval(FOCUS)
        if name.startswith("body") or name in reached:
            break
        assert seen, f"{name} has the focus, and nobody sees it"
        reached.append(name)
        if name == "button: own":
            chromium.press("Enter")
            chromium.wait("document.querySelector('#feed-name').textContent.startsWith('own')")
            chromium.wait("document.querySelectorAll('#graph circle').length === 1")
        elif name == "button: first":
            assert chromium.eval("document.activeElement.ariaCurrent") == "true"
            circles = chromium.eval("document.querySelectorAll('#graph circle').length")
        elif name == "input: hours":
            chromium.press("ArrowRight")
            assert chromium.eval("document.activeElement.value") == "week"
            reached.append("input: week")
        elif name.startswith("summary"):
            chromium.press("Enter")
            assert chromium.eval("document.querySelector('details').open")
    assert circles == 10
    assert reached == [
        "input: Show feeds by alias or key",
        "div: Feeds",
        "button: first",
        "button: own",
        "div: Peers of the feed",
        "div: The chains of trust",
        "input: hours",
        "input: week",
        "summary: The same as a table",
        "div: History as a table",
    ]


def test_who_is_folded_away_in_the_graph_is_unfolded_by_a_key(chromium, over_tcp):
    feed = joined(over_tcp.node, "blocklist", days=90, members=12)
    over_tcp.node.connected = [a_peer(feed)]
    opened(chromium, over_tcp)
    chromium.wait("!!document.querySelector('#graph .more')")
    chromium.eval("document.querySelector('#graph .more').focus()")
    chromium.press(" ")
    assert chromium.eval("document.querySelectorAll('#graph circle').length") == 13
