"""The page of a real node in a real browser: a node that hangs, is lost, and comes back."""

from __future__ import annotations

import signal
import time

import pytest
from chromium import Chromium, opened
from nodes import free_port, real_nodes

#: The colours of what is well, and of plain figures.
COLOURS = """
[getComputedStyle(document.querySelector('#all')).getPropertyValue('--good'),
 getComputedStyle(document.querySelector('#glance dd')).color]
"""


@pytest.fixture
def node(tmp_path):
    """A node with one value, whose page can be opened."""
    with real_nodes(tmp_path) as nodes:
        made = nodes.make(
            "shown", feed="words", config=f'[api]\nlisten = "127.0.0.1:{free_port()}"\n'
        )
        made.start()
        made.put(b"one")
        yield made


def shown(browser: Chromium) -> dict:
    """What the page says of its link to the node."""
    return browser.eval(
        "({ link: document.querySelector('#link').textContent, title: document.title,"
        " old: document.querySelector('#stale:not([hidden])')?.innerText ?? '',"
        " stale: document.body.classList.contains('stale') })"
    )


def wait_for(browser: Chromium, link: str) -> dict:
    """Until the page says how its link is."""
    browser.wait(f"document.querySelector('#link').textContent === '{link}'")
    return shown(browser)


def assert_accessible(browser: Chromium, axe: str) -> None:
    """No rule is violated, in the light or in the dark."""
    for scheme in ("dark", "light"):
        browser.scheme(scheme)
        assert browser.violations(axe) == [], scheme


def test_a_hang_and_a_loss_are_seen_and_a_restart_ends_the_session(chromium, axe, node):
    opened(chromium, node)
    name = node.key.hex()[:8]
    live = wait_for(chromium, "live")
    assert (live["stale"], live["old"]) == (False, "")
    assert live["title"] == f"no peer · {name} · hyperbloom"
    colours = chromium.eval(COLOURS)

    node.process.send_signal(signal.SIGSTOP)
    try:
        hung = wait_for(chromium, "no answer")
        assert hung["title"] == f"no answer · {name} · hyperbloom"
        assert "The node does not answer" in hung["old"]
        assert "What is shown is of" in hung["old"]
        # No figure looks as if it were of now, and none is taken away.
        assert all(a != b for a, b in zip(colours, chromium.eval(COLOURS), strict=True))
        assert chromium.eval("document.querySelector('#glance').innerText").count("\n") > 3
        assert_accessible(chromium, axe)
    finally:
        node.process.send_signal(signal.SIGCONT)
    assert wait_for(chromium, "live") == live
    assert chromium.eval(COLOURS) == colours

    node.kill()
    lost = wait_for(chromium, "lost")
    assert lost["title"] == f"lost · {name} · hyperbloom"
    assert lost["stale"]
    assert_accessible(chromium, axe)
    node.start()
    wait_for(chromium, "no session")
    door = chromium.eval("document.querySelector('#door:not([hidden])').innerText")
    assert "The session is over." in door
    assert "hyperbloom status --web" in door
    opened(chromium, node)
    node.put(b"two")
    chromium.wait("document.querySelector('#feeds tbody tr').cells[1].textContent === '2'")
    assert wait_for(chromium, "live") == live


@pytest.mark.soak
@pytest.mark.parametrize("asleep", [8, 40])
def test_a_page_that_slept_blames_no_node(chromium, node, asleep):
    """As browsers put pages in the background to sleep: no timer, and no word of the node."""
    opened(chromium, node)
    wait_for(chromium, "live")
    chromium.eval(
        "globalThis.said = []; new MutationObserver(() => {"
        " said.push(document.querySelector('#link').textContent);"
        "}).observe(document.querySelector('#link'), { childList: true, characterData: true,"
        " subtree: true }); true"
    )
    frames = chromium.eval("Number(document.body.dataset.frames)")
    chromium.send("Page.setWebLifecycleState", state="frozen")
    time.sleep(asleep)
    chromium.send("Page.setWebLifecycleState", state="active")
    chromium.wait(f"document.body.dataset.frames > {frames + 2}")
    time.sleep(8)
    assert chromium.eval("said") == []
    assert wait_for(chromium, "live")["old"] == ""
