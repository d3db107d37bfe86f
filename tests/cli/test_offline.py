"""Commands that need no node, and every way not to get to one."""

from __future__ import annotations

import json
import os
import re
import runpy
import stat
import sys
from pathlib import Path

import pytest

from hyperbloom import keys
from hyperbloom.exit_codes import EXIT_MEANINGS, ExitCode
from hyperbloom.keys import discovery_key, load_key_file

ROOT = Path(__file__).parent.parent.parent
KEY = "ab" * 32


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# init and key


def test_init_makes_a_key_and_a_configuration(offline, tmp_path):
    before = os.umask(0)
    try:
        out = offline.out("init", "new/node")
    finally:
        os.umask(before)
    folder = tmp_path / "new" / "node"
    assert mode(folder) == 0o700
    assert mode(folder / "identity.key") == 0o600
    assert re.fullmatch(r"[0-9a-f]{64}\n", (folder / "identity.key").read_text())
    public = load_key_file(folder / "identity.key").public_key.hex()
    assert out == f"Made new/node/hyperbloom.toml and the feed main\nPublic key {public}\n"
    names = ["feed-keys", "hyperbloom.toml", "identity.key"]
    assert sorted(path.name for path in folder.iterdir()) == names
    (key_file,) = (folder / "feed-keys").iterdir()
    assert mode(folder / "feed-keys") == 0o700
    assert mode(key_file) == 0o600
    feed = load_key_file(key_file).public_key
    assert feed.hex() != public
    assert key_file.name == f"main.{discovery_key(feed).hex()[:8]}.key"
    assert feed.hex() not in out


def test_init_names_its_feed_or_makes_none(offline, tmp_path):
    assert "the feed blocklist" in offline.out("init", "a", "--feed", "blocklist")
    assert json.loads(offline.out("init", "b", "--no-feed", "--json"))["feed"] is None
    assert not (tmp_path / "b" / "feed-keys").exists()
    assert "names the node's own feed" in offline.refusal(2, "init", "c", "--feed", "own")
    assert not (tmp_path / "c").exists()


def test_init_in_json_with_addresses(offline, tmp_path):
    out = offline.out(
        "init", "n", "--json", "--listen", "tcp:1:interface=127.0.0.1", "--advertise", "a.example:1"
    )
    form = json.loads(out)
    assert set(form) == {"public", "feed", "config"}
    text = (tmp_path / "n" / "hyperbloom.toml").read_text()
    assert '\nlisten = ["tcp:1:interface=127.0.0.1"]\n' in text
    assert '\nadvertise = ["a.example:1"]' in text


@pytest.mark.parametrize("name", ["hyperbloom.toml", "identity.key", "feed-keys"])
def test_init_overwrites_nothing(offline, tmp_path, name):
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / name).write_text("precious")
    assert "is not overwritten" in offline.refusal(3, "init", "n")
    assert [path.name for path in (tmp_path / "n").iterdir()] == [name]
    assert (tmp_path / "n" / name).read_text() == "precious"


def test_init_where_it_cannot(offline, tmp_path):
    (tmp_path / "file").write_text("")
    assert "cannot be made there (Not a directory)" in offline.refusal(3, "init", "file/n")
    assert "name another folder" in offline.refusal(3, "init", "file")
    assert "not tcp:PORT" in offline.refusal(3, "init", "n", "--listen", "4365")
    assert not (tmp_path / "n").exists()


def test_every_key_made_is_another(offline):
    keys = {json.loads(offline.out("init", f"n{number}", "--json"))["public"] for number in "123"}
    assert len(keys) == 3


def test_key(offline, tmp_path):
    made = json.loads(offline.out("init", "n", "--json"))
    config = "n/hyperbloom.toml"
    public = load_key_file(tmp_path / "n" / "identity.key").public_key
    form = {"public": public.hex()}
    assert json.loads(offline.out("key", "--json", "-c", config)) == form
    assert form.items() <= made.items()
    assert offline.out("key", "-c", config) == f"{public.hex()}\n"


# Which node: before or after the name, by a variable, in this folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["-c", "n/hyperbloom.toml", "--json", "key"],
        ["key", "--json", "-c", "n/hyperbloom.toml"],
        ["--config", "n/hyperbloom.toml", "key", "--json"],
        ["--config=n/hyperbloom.toml", "--json", "key"],
        ["-c", "nowhere", "key", "-c", "n", "--json"],
    ],
)
def test_common_options_before_and_after_the_name(offline, arguments):
    made = json.loads(offline.out("init", "n", "--json"))
    assert json.loads(offline.out(*arguments))["public"] == made["public"]


def test_common_options_at_all_places_of_a_nested_command(offline):
    offline.out("init", "n")
    for arguments in (
        ["-c", "n", "trust", "list"],
        ["trust", "-c", "n", "list"],
        ["trust", "list", "-c", "n"],
    ):
        assert "no node runs on" in offline.refusal(4, *arguments)


def test_the_variable_and_the_folder(offline, monkeypatch, tmp_path):
    made = json.loads(offline.out("init", "n", "--json"))
    monkeypatch.setenv("HYPERBLOOM_CONFIG", "n/hyperbloom.toml")
    assert json.loads(offline.out("key", "--json"))["public"] == made["public"]
    other = json.loads(offline.out("init", "m", "--json"))
    assert json.loads(offline.out("key", "--json", "-c", "m"))["public"] == other["public"]
    monkeypatch.delenv("HYPERBLOOM_CONFIG")
    assert "say which node: give -c" in offline.refusal(2, "key")
    monkeypatch.chdir(tmp_path / "m")
    assert json.loads(offline.out("key", "--json"))["public"] == other["public"]


def test_the_systems_configuration_where_no_other_is_named(offline, monkeypatch, tmp_path):
    system = json.loads(offline.out("init", "system", "--json"))
    assert json.loads(offline.out("key", "--json"))["public"] == system["public"]
    offline.out("init", "m")
    monkeypatch.chdir(tmp_path / "m")
    assert json.loads(offline.out("key", "--json"))["public"] != system["public"]


# What is wrong, in one sentence


def test_wrong_configurations(offline, tmp_path):
    assert "there is no such file" in offline.refusal(3, "key", "-c", "none.toml")
    offline.out("init", "n")
    config = tmp_path / "n" / "hyperbloom.toml"
    config.write_text("[node]\nlisten = 3\n")
    assert "[node] listen: must be a list" in offline.refusal(3, "key", "-c", "n")
    assert "[node] listen" in offline.refusal(3, "status", "-c", "n")
    assert "[node] listen" in offline.refusal(3, "run", "-c", "n")
    config.write_text("nonsense")
    assert "this is not TOML" in offline.refusal(3, "key", "-c", "n")


def test_wrong_key_files(offline, tmp_path):
    offline.out("init", "n")
    path = tmp_path / "n" / "identity.key"
    path.chmod(0o640)
    for command in ("key", "run"):
        assert str(path) in offline.refusal(3, command, "-c", "n")
    path.chmod(0o600)
    path.write_text("short")
    assert str(path) in offline.refusal(3, "key", "-c", "n")
    path.unlink()
    assert str(path) in offline.refusal(3, "run", "-c", "n")


COMMANDS_FOR_A_NODE = [
    ["put", "a"],
    ["get"],
    ["has", "a"],
    ["count"],
    ["watch"],
    ["trust", "issue", KEY, "--expires", "1d"],
    ["trust", "add", KEY, "00"],
    ["trust", "list"],
    ["trust", "show"],
    ["feed", "join", KEY],
    ["feed", "list"],
    ["feed", "leave", KEY],
    ["peers"],
    ["status"],
    ["invite", KEY],
]


@pytest.mark.parametrize("arguments", COMMANDS_FOR_A_NODE, ids=" ".join)
def test_no_node_runs(offline, arguments):
    offline.out("init", "n")
    sentence = offline.refusal(4, *arguments, "-c", "n", "--timeout", "5s", "--json")
    assert sentence.startswith("no node runs on /")
    assert sentence.endswith("; start it with `hyperbloom run -c n`")


def test_what_starts_the_node_can_be_pasted(offline, monkeypatch, tmp_path):
    offline.out("init", "my node")
    assert offline.refusal(4, "-c", "my node", "count").endswith("`hyperbloom run -c 'my node'`")
    monkeypatch.setenv("HYPERBLOOM_CONFIG", "my node")
    assert offline.refusal(4, "count").endswith("; start it with `hyperbloom run`")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["--logfile", "x y"], "`-- --logfile 'x y'`"),
        (["--logfile=x"], "`-- --logfile=x`"),
        (["--profile", "--nothotshot"], "`-- --profile`"),
        (["-l", "x"], "`-- -l x`"),
    ],
)
def test_an_option_of_twistd_goes_behind_two_dashes(offline, arguments, hint):
    offline.out("init", "n")
    sentence = offline.refusal(2, "run", "-c", "n", *arguments)
    assert f"{hint} (see `hyperbloom run --help`)" in sentence


USAGE = [
    ["nonsense"],
    ["trust", "nonsense"],
    ["put"],
    ["put", "--nonsense"],
    ["put", "--hex", "zz"],
    ["put", "a", "--timeout", "soon"],
    ["put", "a", "--timeout", "0"],
    ["get", "--limit", "-1"],
    ["get", "--hex", "--start", "b"],
    ["has"],
    ["trust", "issue", ""],
    ["trust", "issue", "zz" * 128],
    ["trust", "issue", KEY, "--expires", "30"],
    ["trust", "issue", KEY, "--expires", "2001-01-01"],
    ["trust", "add", KEY],
    ["trust", "add", KEY, "zz"],
    ["feed", "join", "no alias"],
    ["feed", "join", KEY, "--peer", "example.org"],
    ["feed", "join", KEY, "--mode", "half"],
    ["feed", "join", KEY, "--mode", "range"],
    ["feed", "join", KEY, "--range", "a", "b"],
    ["invite", KEY, "--address", "x"],
    ["init"],
    ["watch", "--count", "0"],
]


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_a_wrong_command_line(offline, arguments):
    offline.out("init", "n")
    sentence = offline.refusal(2, "-c", "n", *arguments)
    assert re.search(r" \(see `.+ --help`\)$", sentence) or "--" in sentence


@pytest.mark.parametrize("arguments", [[], ["trust"], ["feed"]])
def test_no_command_at_all_shows_what_there_is(offline, arguments):
    result = offline(*arguments)
    assert result.exit_code in (0, 2)
    assert "\nCommands:\n" in result.output
    assert not result.output.startswith("hyperbloom:")


def test_a_damaged_invitation_needs_no_node(offline):
    assert "cut short" in offline.refusal(3, "join", "hyperbloom:AAAA", "-c", "nowhere")
    assert "begins with hyperbloom:" in offline.refusal(3, "join", "-", stdin="hello\n")


def test_what_nobody_foresaw(offline, monkeypatch, tmp_path):
    def broken(*_):
        raise RuntimeError("two\nlines")

    offline.out("init", "n")
    monkeypatch.setattr(keys, "load_key_file", broken)
    sentence = offline.refusal(70, "key", "-c", "n")
    log = tmp_path / "state" / "hyperbloom" / "cli.log"
    assert sentence == (f"unexpected error (RuntimeError: two lines); the details are in {log}")
    assert "Traceback" in log.read_text()
    assert mode(log) == 0o600


def test_the_details_hold_no_argument_and_no_key(offline, monkeypatch, tmp_path):
    line = "hyperbloom:AeGIE2XACVpZomU9T6zt-dBnRyko0WIG8Wfxw2EeSyZVAYkB_Nh9wIRKFFHyX"

    def broken(text):
        raise RuntimeError(f"{text} of {KEY} fails")

    monkeypatch.setattr("hyperbloom.invitation.decode_invitation", broken)
    monkeypatch.setattr(sys, "argv", ["hyperbloom", "join", line, "--alias", "a-long-word-of-mine"])
    offline("join", line, "-c", "n")
    offline("join", "-", "-c", "n", stdin=f"{line}\n")
    log = (tmp_path / "state" / "hyperbloom" / "cli.log").read_text()
    assert log.count("RuntimeError: … of … fails") == 2
    assert log.count("$ hyperbloom join …\n") == 2
    assert [word for word in (line, KEY, "a-long-word-of-mine") if word in log] == []


def test_what_nobody_foresaw_and_no_place_to_keep_it(offline, monkeypatch, tmp_path):
    (tmp_path / "state").write_text("in the way")
    offline.out("init", "n")
    monkeypatch.setattr(keys, "load_key_file", lambda path: 1 / 0)
    assert "could not be written to" in offline.refusal(70, "key", "-c", "n")


# Help


def test_help_tells_the_exit_codes(offline):
    text = offline.out("--help")
    for code in ExitCode:
        assert re.search(rf"^  {int(code)} +\w", text, re.MULTILINE)
    assert set(EXIT_MEANINGS) == set(ExitCode)
    for command in ("init", "put", "trust", "feed", "run", "join"):
        assert re.search(rf"^  {command} +\w", text, re.MULTILINE)
    assert offline.out("-h") == text
    assert offline.out("--version").startswith("hyperbloom, version ")


def test_the_page_about_the_commands_is_fresh(monkeypatch):
    page = runpy.run_path(str(ROOT / "scripts" / "cli-docs"))["page"]()
    assert (ROOT / "docs" / "cli.md").read_text() == page
    assert "## hyperbloom trust issue\n" in page
    assert "| 3 | the configuration" in page
