"""Completion of the command's words, as the shells themselves do it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from fake_integrations import an_integration
from nodes import HYPERBLOOM

from hyperbloom.replication.settings import FeedSettings

IN_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_hyperbloom_completion hyperbloom "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
IN_ZSH = """
compdef() { :; }
compadd() { print -l -- "$@"; }
_describe() { print -l -- "${(P)3[@]}" "${(P)2[@]}"; }
script=$1; shift
source $script
words=("$@"); CURRENT=$#
_hyperbloom_completion
"""
IN_FISH = 'source $argv[1]; complete -C "$argv[2]"'


def shell(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is missing")


def script(name: str, folder: Path) -> Path:
    done = run([HYPERBLOOM, "completion", name])
    path = folder / f"completion.{name}"
    path.write_text(done)
    return path


def run(command: list[str]) -> str:
    # The script calls `hyperbloom` from the PATH.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        env=os.environ | {"PATH": path},
    )
    return done.stdout


@shell("bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["hyperbloom", "re"], {"reload"}),
        (["hyperbloom", "comp"], {"completion"}),
        (["hyperbloom", "completion", ""], {"bash", "zsh", "fish"}),
        (["hyperbloom", "init", "--adv"], {"--advertise"}),
        (["hyperbloom", "snap"], {"snapshot"}),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], offered: set[str]) -> None:
    found = run(["bash", "-c", IN_BASH, "bash", str(script("bash", tmp_path)), *words])
    # `snapshot` may have neighbours.
    assert offered <= set(found.split())
    assert all(one.startswith(words[-1]) for one in found.split())


@pytest.fixture
def named(served):
    """A node with feeds, names and keys to offer; its configuration."""
    node = served.node
    node.add(FeedSettings(key=b"\xfe" * 32, alias="notes"))
    node.add(FeedSettings(key=b"\xfd" * 32))
    node.names.by_key = {
        b"\xab" * 32: "alice",
        b"\xac" * 32: "Alan",
        b"\xad" * 32: "all of us",
        b"\xae" * 32: "al,*",
    }
    node.denied_keys = {b"\xab" * 32: "spam", b"\xcd" * 32: ""}
    node.noise = {b"\xef" * 32: 5}
    served.integrations.shown = [an_integration(), an_integration(name="proxy")]
    return str(served.folder / "hyperbloom.toml")


@shell("bash")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["trust", "deny", "al"], {"alice", "Alan"}),
        (["invite", "0001"], {"0001020304050607"}),
        (["invite", "00010203040506070"], {bytes(range(32)).hex()}),
        (["trust", "allow", ""], {"alice", "cd" * 8}),
        (["peers", "forget-noise", "e"], {"ef" * 8}),
        (["peer", "unname", "ali"], {"alice"}),
        (["forget", "--by", "ali"], {"alice"}),
        (["put", "--feed", ""], {"own", "notes", "fd" * 8}),
        (["feed", "leave", "n"], {"notes"}),
        (["trust", "deny", "nobody"], set()),
        (["output", "run", ""], {"resolver", "proxy"}),
        (["hook", "show", ""], set()),
    ],
)
def test_bash_completes_what_the_node_knows(
    tmp_path: Path, named: str, words: list[str], offered: set[str]
) -> None:
    """Words that a shell would have to quote are left out: its script would break them up."""
    line = ["hyperbloom", "-c", named, *words]
    found = run(["bash", "-c", IN_BASH, "bash", str(script("bash", tmp_path)), *line])
    assert set(found.split()) == offered


@shell("bash")
def test_where_no_node_answers_nothing_is_offered(tmp_path: Path) -> None:
    line = ["hyperbloom", "-c", str(tmp_path / "none.toml"), "trust", "deny", ""]
    assert run(["bash", "-c", IN_BASH, "bash", str(script("bash", tmp_path)), *line]) == "\n"


@shell("bash")
def test_bash_offers_nothing_for_what_is_not_there(tmp_path: Path) -> None:
    words = ["hyperbloom", "no-such"]
    assert run(["bash", "-c", IN_BASH, "bash", str(script("bash", tmp_path)), *words]) == "\n"


@shell("zsh")
def test_zsh_completes(tmp_path: Path) -> None:
    found = run(["zsh", "-fc", IN_ZSH, "zsh", str(script("zsh", tmp_path)), "hyperbloom", "relo"])
    assert "reload" in found


@shell("fish")
def test_fish_completes(tmp_path: Path) -> None:
    found = run(["fish", "--no-config", "-c", IN_FISH, str(script("fish", tmp_path)),
                 "hyperbloom relo"])  # fmt: skip
    assert "reload" in found


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script_that_asks_this_command(name: str) -> None:
    text = run([HYPERBLOOM, "completion", name])
    assert f"_HYPERBLOOM_COMPLETE={name}_complete" in text
    assert json.loads(run([HYPERBLOOM, "completion", name, "--json"])) == {
        "shell": name,
        "script": text.strip(),
    }


def test_another_shell_is_refused() -> None:
    done = subprocess.run([HYPERBLOOM, "completion", "csh"], capture_output=True, timeout=240)
    assert done.returncode == 2
    assert b"csh" in done.stderr
