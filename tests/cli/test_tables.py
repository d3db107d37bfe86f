"""What a person sees: tables of 80 columns and less, and texts that a terminal must not obey."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest
from fake_node import a_peer
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hyperbloom.cli import output, tables
from hyperbloom.cli.printable import printable
from hyperbloom.cli.tables import Key, Name
from hyperbloom.invitation import Invitation, encode_invitation
from hyperbloom.keys import Identity
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.trust import issue_link

OTHER = Identity(b"o" * 32)
LONG_ALIAS = "a-feed-whose-alias-is-as-long-as-an-alias-may-be-and-not-longer"
ADDRESSES = ["127.0.0.1:65535", "255.255.255.255:65535", "[2001:db8:85a3::8a2e:370:7334]:65535"]
ESCAPES = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp\u2028"


@pytest.fixture
def terminal(node, monkeypatch):
    """The command as in a terminal of so many columns."""
    monkeypatch.setattr(output.Output, "is_terminal", property(lambda self: True))

    def run(columns, *arguments):
        monkeypatch.setenv("COLUMNS", str(columns))
        return node.out(*arguments).splitlines()

    return run


@pytest.fixture
def crowded(served):
    """A node with a long alias, three peers, and members of members."""
    node = served.node
    served.call(node.add, FeedSettings(key=OTHER.public_key, alias=LONG_ALIAS))
    node.connected = [
        a_peer(
            OTHER.public_key,
            address=address,
            key=bytes([number]) * 32,
            since=time.time() - 2_591_000,
            values_in=12_345_678,
            values_out=9_876_543,
        )
        for number, address in enumerate(ADDRESSES, 1)
    ]
    link = issue_link(OTHER, node.identity.public_key, expires=4e9, nonce=bytes(32))
    node.feeds[OTHER.public_key]._learn(OTHER.public_key, link)
    return served


@pytest.mark.parametrize("columns", [80, 100, 200])
@pytest.mark.parametrize(
    "command",
    [["status"], ["peers"], ["feed", "list"], ["trust", "show"], ["trust", "list"]],
    ids=" ".join,
)
def test_tables_fit_and_no_cell_is_broken(crowded, terminal, command, columns):
    feed = ["--feed", OTHER.public_key.hex()] if command[0] == "trust" else []
    lines = terminal(columns, *command, *feed)
    # What is to be pasted is left in one piece.
    lines = [line for line in lines if not line.startswith("    `")]
    assert max(map(len, lines)) <= columns, "\n".join(lines)
    text = "\n".join(lines)
    if command == ["peers"]:
        assert [address for address in ADDRESSES if address in text] == ADDRESSES
        assert text.count("12,345,678/9,876,543") == 3
    if columns == 200 and command[0] != "trust":
        assert LONG_ALIAS in text


def test_addresses_are_whole_however_narrow_the_terminal(crowded, terminal):
    for columns in range(20, 120):
        text = "\n".join(terminal(columns, "peers"))
        assert [address for address in ADDRESSES if address in text] == ADDRESSES


def test_where_a_table_does_not_fit_rows_are_blocks(crowded, terminal):
    lines = terminal(40, "peers")
    assert lines[0] == f"address   {ADDRESSES[0]}"
    assert lines[1] == f"key       {'01' * 32}"
    assert lines[2] == f"feed      {LONG_ALIAS}"
    assert lines[6] == "in sync   yes, 5s ago, digest"
    assert lines[7] == ""
    assert lines[8].startswith("address")


CELLS = st.one_of(
    st.text(max_size=30), st.builds(Key, st.text(max_size=64)), st.builds(Name, st.text())
)


@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.lists(CELLS, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    st.integers(10, 120),
)
def test_any_table_fits_or_is_shown_otherwise(rows, room):
    widths = tables._widths(["name"] * len(rows[0]), rows, room)
    if widths is not None:
        assert sum(widths) + tables.GAP * (len(widths) - 1) <= room
        for row in rows:
            for cell, width in zip(row, widths, strict=True):
                shown = tables._fitting(cell, width)
                assert cell_len(shown) <= width
                if isinstance(cell, str):
                    assert shown == printable(cell)


# Texts from elsewhere


def test_printable():
    assert printable("Käse 漢字 👩‍🚀\u3000\xa0") == "Käse 漢字 👩‍🚀\u3000\xa0"
    assert printable(ESCAPES) == r"\x1b[2J\x1b]0;owned\x07\u009b31m\u202egnp\u2028"
    assert printable(os.fsdecode(b"\xff\n\t")) == r"\xff\x0a\x09"
    assert printable("\U000e0041\ud800") == r"\U000e0041\ud800"


@given(st.text())
def test_nothing_printable_can_be_obeyed(text):
    shown = printable(text)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    shown.encode()


def hostile(served):
    node = served.node
    served.call(node.add, FeedSettings(key=OTHER.public_key, alias=ESCAPES))
    node.connected = [a_peer(OTHER.public_key, address=ESCAPES)]
    node.refusals = tuple(
        type(one)(at=one.at, address=ESCAPES, kind="x", reason=ESCAPES) for one in node.refusals
    )
    node.problem = ESCAPES
    node.listens = []


COMMANDS = [["status"], ["peers"], ["feed", "list"], ["feed", "leave", "--yes"]]


@pytest.mark.parametrize("columns", [30, 80, 300])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_a_peer_says_reaches_the_terminal_raw(served, terminal, command, columns):
    hostile(served)
    if command[1:] == ["leave", "--yes"]:
        command = [*command, OTHER.public_key.hex()]
    text = "\n".join(terminal(columns, *command))
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", text)
    assert r"\x1b" in text


@pytest.mark.parametrize("command", COMMANDS[:3], ids=" ".join)
def test_nor_does_it_part_the_cells_of_a_pipe(node, served, command):
    hostile(served)
    served.node.feeds[OTHER.public_key].settings = FeedSettings(
        key=OTHER.public_key, alias="a\tb\nc"
    )
    text = node.out(*command)
    assert "\x1b" not in text
    heads = [line for line in text.splitlines() if line.startswith(("feed\t", "address\t"))]
    rows = [line for line in text.splitlines() if line.count("\t") > 1]
    assert {row.count("\t") for row in rows} == {heads[0].count("\t")}


def test_an_error_of_the_node_is_not_obeyed(node, served):
    served.node.own.failure = ValueError(ESCAPES)
    assert r"\x1b[2J" in node.refusal(1, "put", "a")


# A real terminal


def in_terminal(served, environment, *arguments, code=0, typed=b""):
    """What a terminal gets of a command: output and messages."""
    main, other = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hyperbloom.cli", "-c", str(served.folder), *arguments],
        env={**environment, "COLUMNS": "80", "TERM": "xterm"},
        stdin=other,
        stdout=other,
        stderr=other,
    )
    os.close(other)
    os.write(main, typed)
    parts = []
    while select.select([main], [], [], 20)[0]:
        try:
            parts.append(os.read(main, 65_536))
        except OSError:  # closed at the other end
            break
    os.close(main)
    assert process.wait(240) == code
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_values_are_raw_for_pipes_and_harmless_for_a_terminal(node, served, environment):
    values = [b"\x1b[31mred", b"\xff", "Käse".encode()]
    served.call(served.node.own.insert, values)
    assert node("get").stdout_bytes == b"".join(value + b"\n" for value in sorted(values))
    shown = in_terminal(served, environment, "get")
    assert shown == "\\x1b[31mred\nKäse\n\\xff\n"
    watched = in_terminal(served, environment, "watch", "--existing", "--count", "2")
    assert watched == "\\x1b[31mred\n\\xff\n"
    assert json.loads(in_terminal(served, environment, "get", "--json"))["values"][2] == "ff"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_completion_script_is_the_same_in_a_terminal(node, served, environment, shell):
    assert in_terminal(served, environment, "completion", shell) == node.out("completion", shell)


def test_a_feed_without_values_in_a_terminal(served, environment):
    assert in_terminal(served, environment, "get") == "hyperbloom: no values\n"
    assert in_terminal(served, environment, "get", "--start", "x") == (
        "hyperbloom: no values in this range\n"
    )


def test_who_says_no_leaves_nothing(served, environment):
    served.call(served.node.add, FeedSettings(key=OTHER.public_key, alias="o"))
    text = in_terminal(served, environment, "feed", "leave", "o", code=1, typed=b"n\n")
    assert "Leave o and remove its 0 values from this node?" in text
    assert text.endswith("hyperbloom: nothing was changed\n")
    assert OTHER.public_key in served.node.feeds
    assert in_terminal(served, environment, "feed", "leave", "o", typed=b"y\n").endswith(
        "Left o; its values are removed.\n"
    )


@pytest.mark.parametrize(("typed", "more"), [(b"y\n", ["b.example:1"]), (b"\n", [])])
def test_addresses_for_a_joined_feed_are_asked_about(served, environment, typed, more):
    own = served.node.identity.public_key
    links = (issue_link(OTHER, own, expires=4e9, nonce=bytes(32)).to_bytes(),)
    settings = FeedSettings(key=OTHER.public_key, alias="o", peers=("a.example:1",))
    served.call(served.node.add, settings)
    line = encode_invitation(
        Invitation(feed_key=OTHER.public_key, links=links, addresses=("a.example:1", "b.example:1"))
    )
    text = " ".join(in_terminal(served, environment, "join", line, typed=typed).split())
    assert "o is joined already and dials a.example:1; the invitation names b.example:1" in text
    assert "Dial these from now on? [y/N]" in text
    assert "Joined o." in text
    settings = served.node.feeds[OTHER.public_key].settings
    assert list(settings.peers) == ["a.example:1", *more]


def test_no_peers_in_a_terminal(served, environment):
    served.node.connected = []
    assert in_terminal(served, environment, "peers") == (
        f"No peer is connected; see `hyperbloom status -c {served.folder}`.\n"
    )


def test_messages_are_wrapped_but_for_what_is_pasted(served, environment):
    served.call(served.service.stopService)
    folder = served.folder
    text = in_terminal(served, environment, "count", code=4)
    words = f"no node runs on {folder}; start it with `hyperbloom run -c {folder}`"
    assert " ".join(text.split()) == f"hyperbloom: {words}"
    assert f"`hyperbloom run -c {folder}`" in text
    assert max(map(len, text.splitlines())) <= 80
    served.call(served.service.startService)


def test_long_problems_are_wrapped_whole(served, environment):
    served.call(served.node.add, FeedSettings(key=OTHER.public_key, alias="o"))
    served.node.problem = "; ".join(
        f"node-{n}.example.org:4365: Connection was refused by other side" for n in range(4)
    )
    text = in_terminal(served, environment, "status")
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= 80
    assert served.node.problem in " ".join(plain.split())
