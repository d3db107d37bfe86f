"""Keys by name: in tables of any width, with all digits, and what is said of unused invitations."""

from __future__ import annotations

import json

import pytest

from hyperbloom.cli import output
from hyperbloom.cli.tables import PeerKey, print_table
from hyperbloom.keys import Identity

FRIEND_KEY = Identity(b"\x01" * 32).public_key.hex()
OTHER_KEY = Identity(b"\x02" * 32).public_key.hex()
FRIEND, OTHER = bytes.fromhex(FRIEND_KEY), bytes.fromhex(OTHER_KEY)


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setattr(output.Output, "is_terminal", property(lambda self: True))
    monkeypatch.setenv("COLUMNS", "80")


def test_a_key_is_named_listed_and_unnamed(node):
    assert node.out("peer", "name", FRIEND_KEY, "alice") == f"{FRIEND_KEY} is called alice\n"
    again = node.out("peer", "name", "alice", "Alice Smith")
    assert again == f"{FRIEND_KEY} is called Alice Smith, and no longer alice\n"
    node.out("peer", "name", OTHER_KEY, "bob")
    rows = [line.split("\t") for line in node.out("peer", "names").splitlines()]
    assert rows == [
        ["name", "key", "since"],
        ["Alice Smith", FRIEND_KEY, "1970-01-01 00:00 UTC"],
        ["bob", OTHER_KEY, "1970-01-01 00:00 UTC"],
    ]
    assert len(json.loads(node.out("peer", "names", "--json"))["names"]) == 2
    assert node.out("peer", "unname", "bob") == f"{OTHER_KEY} was called bob\n"
    gone = node("peer", "unname", OTHER_KEY)
    assert (gone.exit_code, gone.stdout) == (1, f"{OTHER_KEY} had no name\n")
    assert "looks like the beginning of a key" in node.refusal(
        1, "peer", "name", OTHER_KEY, "deadbeef"
    )


def test_what_is_done_to_a_key_says_whose_it_was(node, served):
    node.out("peer", "name", FRIEND_KEY, "alice")
    whole = f"alice ({FRIEND_KEY})"
    issued = node("trust", "issue", "alice")
    assert issued.stderr == f"hyperbloom: the link is for {whole}\n"
    invited = node("invite", FRIEND_KEY[:16], "--feed", "own", "--address", "h.example:1")
    assert invited.stderr == f"hyperbloom: the invitation to own is for {whole}\n"
    named = node("invite", OTHER_KEY, "--name", "bob", "--address", "h.example:1")
    assert named.stderr == f"hyperbloom: the invitation to own is for bob ({OTHER_KEY})\n"
    assert node.out("trust", "deny", "alice") == f"{whole} is denied\n"
    assert node.out("trust", "allow", FRIEND_KEY[:20]) == f"{whole} is allowed\n"
    assert node.out("forget", "--by", "alice", "--dry-run") == (
        f"0 would be forgotten in own, 0 bytes, brought by {whole}\n"
    )
    assert served.node.own.forgetting.steps[-1].origin == FRIEND


def test_a_name_that_moves_on_takes_nothing_along(node, served):
    """Which key is meant is asked once: by the next step the name may be another's."""
    names = served.node.names
    names.by_key = {FRIEND: "alice"}
    steps = served.node.own.forgetting.steps
    with served.client() as client:
        found = client.forget({"by": "alice"})
        assert next(found)["by"] == FRIEND_KEY
    assert [one.origin for one in steps] == [FRIEND]


def test_the_own_key_is_not_invited(node, served):
    own = node.out("key").strip()
    assert own == served.node.identity.public_key.hex()
    told = node.refusal(1, "invite", own)
    assert told == (
        "this is the key of this node itself, which needs no invitation: give the key of the other "
        "node, as `hyperbloom key` prints it there"
    )


def test_invitations_that_nobody_has_used_stand_apart(node, served, terminal):
    served.node.own.issue_link(OTHER, expires=4e9)
    node("invite", FRIEND_KEY, "--name", "alice")
    lines = node.out("trust", "show").splitlines()
    apart = lines.index("Invited, and not seen here yet (1):")
    assert any(line.startswith(OTHER_KEY[:16]) for line in lines[:apart])
    assert not any("alice" in line for line in lines[:apart])
    assert sum(line.startswith(f"alice ({FRIEND_KEY[:8]}") for line in lines[apart:]) == 1
    assert max(map(len, lines)) <= 80
    served.node.own.pending.clear()
    assert "Invited" not in node.out("trust", "show")


def test_tables_show_names_first_and_digits_where_there_is_room(node, served, terminal):
    key = served.node.connected[0].key
    node.out("peer", "name", key.hex(), "a name of some length")
    served.node.denied_keys = {key: "spam"}
    served.node.noise = {key: 5}
    for command in (["peers"], ["trust", "denied"], ["peers", "noise"], ["peer", "names"]):
        lines = node.out(*command, "--json").splitlines()
        assert key.hex() in lines[0]
        result = node(*command)
        lines = result.stdout.splitlines()
        assert max(map(len, lines)) <= 80, "\n".join(lines)
        assert any("a name of some" in line for line in lines), "\n".join(lines)
        whole = node(*command, "--full").stdout
        assert key.hex() in whole
        assert "\u2026" not in whole


@pytest.mark.parametrize(
    ("columns", "shown"),
    [(80, "alice (0123456789abcdef)"), (18, "alice (0123456789)"), (15, "alice"), (5, "alice")],
)
def test_a_named_key_gives_its_digits_away_before_its_name(monkeypatch, capsys, columns, shown):
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(("who",), [(PeerKey("0123456789abcdef" * 4, "alice"),)])
    assert capsys.readouterr().out.splitlines()[-1].strip() == shown


def test_a_long_name_is_cut_and_a_hostile_one_moves_no_cursor(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "16")
    print_table(("who",), [(PeerKey("ab" * 32, "a" * 64),)])
    assert capsys.readouterr().out.splitlines()[-1] == "a" * 15 + "\u2026"
    print_table(("who",), [(PeerKey("ab" * 32, "\x1b[2J"),)])
    assert "\x1b[2J" not in capsys.readouterr().out


def test_keys_that_speak_noise_are_listed_and_forgotten(node, served):
    assert node.out("peers", "noise") == "key\tfirst met\tlast met\n"
    served.node.noise = {bytes.fromhex(FRIEND_KEY): 86_400_000_000, b"\xab" * 32: 2_000_000}
    lines = node.out("peers", "noise").splitlines()[1:]
    assert lines == [
        f"{'ab' * 32}\t1970-01-01 00:00 UTC\t1970-01-01 00:00 UTC",
        f"{FRIEND_KEY}\t1970-01-01 00:00 UTC\t1970-01-02 00:00 UTC",
    ]
    keys = json.loads(node.out("peers", "noise", "--json"))["keys"]
    assert keys[0] == {
        "key": FRIEND_KEY, "name": None, "first_met": 1.0, "last_met": 86_400.0,
    }  # fmt: skip
    # The beginning that the log has, in either case.
    told = node.out("peers", "forget-noise", FRIEND_KEY[:16].upper())
    assert told == f"{FRIEND_KEY} may be spoken to without noise, until it speaks it again\n"
    assert list(served.node.noise) == [b"\xab" * 32]
    gone = node("peers", "forget-noise", FRIEND_KEY)
    assert (gone.exit_code, gone.stderr) == (1, "")
    assert gone.stdout == f"{FRIEND_KEY} is not remembered as speaking noise\n"
    answer = json.loads(node.out("peers", "forget-noise", "ab" * 8, "--json"))
    assert answer == {"key": "ab" * 32, "name": None, "was_remembered": True}
    assert json.loads(node("peers", "forget-noise", "ab" * 32, "--json").stdout) == {
        "key": "ab" * 32,
        "name": None,
        "was_remembered": False,
    }


def test_what_is_no_key_to_forget_is_said(node, served):
    for name in ("", "ab\x1b", "ab" * 128):
        assert "is no key: give its 64 hex digits" in node.refusal(2, "peers", "forget-noise", name)
    served.node.noise = {b"\xab" * 31 + end: 1 for end in (b"1", b"2")}
    for name in ("blocklist", "192.0.2.7:4365", "abcdef0", "ab" * 33, "ab" * 7, "ab" * 8):
        assert "keys are meant by" in node.refusal(8, "peers", "forget-noise", name)
    assert len(served.node.noise) == 2
