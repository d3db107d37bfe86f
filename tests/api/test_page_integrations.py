"""Outputs, inputs and hooks on the status page."""

from __future__ import annotations

import time

from chromium import opened
from fake_integrations import an_integration

WIDTHS = {"phone": (390, 844, True), "desktop": (1280, 900, False)}
HIDDEN = "document.querySelector('#edges').hidden"
ROWS = """
[...document.querySelectorAll('#integrations tbody tr')].map(
  (row) => [...row.cells].map((cell) => cell.textContent))
"""
SENTENCE = "nft ended with 1: <b>not</b> permitted; " + "run it where rules may be loaded. " * 9


def every_state():
    """Each state, with texts as long as they may be, and words that a browser could obey."""
    now = time.time()
    return [
        an_integration(last_success=now - 60),
        an_integration(
            "output", "firewall", "failing", problem=SENTENCE, next_run=now + 301, target="/" * 300
        ),
        an_integration("input", "l" * 63, "held", problem="half of it is gone; look"),
        an_integration("input", "other", "working", target="lists.example"),
        an_integration(
            "hook", "bell", "waiting", feed=None, last_success=None, problem="set `feed`"
        ),
        an_integration("hook", "<img src=x onerror=alert(1)>", feed="f" * 63),
    ]


def test_they_are_shown_as_they_stand_and_as_long_as_there_are_some(chromium, over_tcp):
    opened(chromium, over_tcp)
    assert chromium.eval(HIDDEN) is True
    over_tcp.integrations.shown = every_state()
    chromium.wait(f"{HIDDEN} === false")
    rows = {row[0]: row[1:] for row in chromium.eval(ROWS)}
    assert rows["resolver"] == [
        "output", "names", "idle", rows["resolver"][3], "/etc/unbound/blocked.conf", "",
    ]  # fmt: skip
    assert rows["resolver"][3] in ("1 min ago", "59 s ago")
    assert rows["firewall"][2] in ("failing, again in 5 min", "failing, again in 4 min")
    assert rows["firewall"][5] == SENTENCE
    assert rows["bell"] == ["hook", "–", "waiting", "–", "/etc/unbound/blocked.conf", "set `feed`"]
    assert "<img src=x onerror=alert(1)>" in rows
    assert chromium.eval("document.querySelectorAll('#integrations :is(b, img)').length") == 0
    over_tcp.integrations.shown = [an_integration(state="working")]
    chromium.wait(f"({ROWS}).map((cells) => cells[3]).join() === 'working'")
    over_tcp.integrations.shown = []
    chromium.wait(HIDDEN)
    assert chromium.complaints() == []


def test_no_state_of_theirs_violates_a_rule_or_is_too_wide(chromium, axe, over_tcp):
    over_tcp.integrations.shown = every_state()
    chromium.size(*WIDTHS["desktop"][:2])
    opened(chromium, over_tcp)
    chromium.wait(f"({ROWS}).length === 6")
    for width, (wide, high, mobile) in WIDTHS.items():
        chromium.size(wide, high, mobile=mobile)
        assert chromium.eval("document.documentElement.scrollWidth <= innerWidth"), width
        # The sentence that says what to do is not out of sight to the right.
        assert chromium.eval(
            "[...document.querySelectorAll('#integrations td:last-child')].every("
            "(cell) => cell.getBoundingClientRect().right <= innerWidth)"
        ), width
        for scheme in ("light", "dark"):
            chromium.scheme(scheme)
            assert chromium.violations(axe) == [], (width, scheme)
