"""Under --json a command that fails says why in one JSON object on standard error."""

from __future__ import annotations

import json
import signal
import subprocess

import click
import pytest
from test_processes import COMMAND, start

from hyperbloom.cli.root import hyperbloom
from hyperbloom.errors import ErrorKind
from hyperbloom.exit_codes import ExitCode
from hyperbloom.replication.settings import FeedSettings

KEY = "5e" * 32
USAGE = "urn:hyperbloom:problem:usage"
UNREACHABLE = ErrorKind.UNREACHABLE.type

#: Every command that asks the node, with arguments that are right.
ASKING = """
    put a | get | get --local | has a | count | count --prefix a | watch | values --by KEY
    forget a --yes | forgotten | invite KEY --address 127.0.0.1:1 | join INVITATION
    trust issue KEY | trust add own 00 | trust list | trust show | trust deny KEY
    trust allow KEY | trust denied
    feed join KEY | feed list | feed leave own --yes | feed create other
    object list | object show 0000000000000000 | object add a=1 | object set 0000000000000000 a=1
    object remove 0000000000000000 | object types | object declare Person(int_age)
    object undeclare Person | object watch | status | peers | peers noise
    peers forget-noise KEY | wait-synced KEY | discover | reload
"""
#: The others, in a way in which they fail, and the exit code.
OTHERS = """
    init n 3 | key -c no-such-folder 3 | run -c no-such-folder 3 | feed adopt no-such-file 3
    feed key other --to file 1
    snapshot no-such-folder/out 1 | restore no-such-folder 7 | seed no-such-folder 7
    snapshots no-such-folder 7 | verify no-such-folder 7 | compact 7
    export run no-such-folder --to tables 7 | export status no-such-folder 1
    export compact no-such-folder 1 | export vacuum no-such-folder 1
    dht serve --port many 2 | dht bootstrap --port many 2 | dht get KEY 2 | dht put a 2
    dht lookup KEY 2 | completion csh 2
"""


def split(table):
    lines = (line for line in table.strip().splitlines())
    return [one.split() for line in lines for one in line.split(" | ")]


def every(group=hyperbloom, words=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from every(command, [*words, name])
        else:
            yield [*words, name]


def problem(result, code):
    """The one object on standard error of a command that must fail, its members checked."""
    assert result.exit_code == code, (result.exit_code, result.output)
    assert result.stdout == ""
    assert result.stderr.endswith("\n")
    form = json.loads(result.stderr)
    assert form.keys() == {"type", "title", "detail", "exit_code"}
    assert form["type"].startswith("urn:hyperbloom:problem:")
    assert form["title"]
    assert form["detail"] == " ".join(form["detail"].split())
    assert form["exit_code"] == code
    return form


@pytest.fixture
def down(offline):
    """The command, told about a node that does not run."""
    offline.out("init", "n")
    return lambda *words: offline(*words, *([] if "-c" in words else ["-c", "n"]), "--json")


@pytest.fixture(scope="module")
def invitation():
    from hyperbloom.invitation import Invitation, encode_invitation
    from hyperbloom.keys import Identity
    from hyperbloom.trust import issue_link

    owner, friend = Identity(b"o" * 32), Identity(b"f" * 32)
    link = issue_link(owner, friend.public_key, expires=4e9, nonce=bytes(32)).to_bytes()
    return encode_invitation(Invitation(feed_key=owner.public_key, links=(link,)))


def test_commands_of_no_table(down):
    """With no arguments at all: what is not done says why in the same way."""
    named = [f"{' '.join(words)} " for words in (*split(ASKING), *split(OTHERS))]
    for words in every():
        if not any(one.startswith(" ".join([*words, ""])) for one in named):
            result = down(*words)
            if result.exit_code:
                problem(result, result.exit_code)


@pytest.mark.parametrize("words", split(ASKING), ids=" ".join)
def test_a_node_that_is_down(down, invitation, words):
    named = {"KEY": KEY, "INVITATION": invitation, "Person(int_age)": "Person(int age)"}
    form = problem(down(*(named.get(word, word) for word in words)), ExitCode.UNREACHABLE)
    assert (form["type"], form["title"]) == (UNREACHABLE, "Nothing answers")
    assert form["detail"].startswith("no node runs on ")
    assert "start it with `hyperbloom run -c n`" in form["detail"]


@pytest.mark.parametrize("words", split(OTHERS), ids=" ".join)
def test_what_needs_no_node_and_fails(down, offline, words):
    *words, code = (KEY if word == "KEY" else word for word in words)
    # `down` has made the folder n; some commands know no -c.
    knows_config = words[0] not in ("init", "dht", "completion")
    problem(down(*words) if knows_config else offline(*words, "--json"), int(code))


@pytest.mark.parametrize("words", [*every(), [], ["trust"], ["no-such-command"]], ids=" ".join)
@pytest.mark.parametrize("first", [True, False])
def test_a_wrong_command_line(offline, words, first):
    wrong = ["--no-such-option", "--json"] if not first else ["--json", "--no-such-option"]
    form = problem(offline(*words, *wrong), ExitCode.USAGE)
    assert (form["type"], form["title"]) == (USAGE, "The command line is wrong")
    assert " --help`)" in form["detail"]


def test_json_may_stand_anywhere_but_behind_two_dashes(offline):
    assert problem(offline("--json", "get", "--limit", "x"), ExitCode.USAGE)
    assert problem(offline("get", "--limit", "x", "--json"), ExitCode.USAGE)
    assert problem(offline("trust", "--json"), ExitCode.USAGE)["detail"].startswith("Missing")
    plain = offline("put", "--limit", "x", "--", "--json")
    assert plain.stderr.startswith("hyperbloom: No such option")


def test_problems_of_the_node_keep_their_type(node, served):
    form = problem(node("count", "--feed", "x", "--json"), ExitCode.NOT_FOUND)
    assert form["type"] == ErrorKind.UNKNOWN_FEED.type
    assert form["detail"].startswith("there is no feed 'x'")
    for number in (1, 2):
        served.call(served.node.add, FeedSettings(key=bytes([number]) * 31 + b"x"))
    form = problem(node("put", "a", "--json", "--feed", "0101010"), ExitCode.NOT_FOUND)
    assert form["type"] == ErrorKind.UNKNOWN_FEED.type


def test_what_nobody_foresaw(offline, monkeypatch):
    def broken(*_):
        raise RuntimeError("two\nlines")

    offline.out("init", "n")
    monkeypatch.setattr("hyperbloom.keys.load_key_file", broken)
    form = problem(offline("key", "-c", "n", "--json"), ExitCode.UNEXPECTED)
    assert form["type"] == ErrorKind.UNEXPECTED.type
    assert form["detail"].startswith("unexpected error (RuntimeError: two lines); the details are")


def test_remarks_are_objects_too_and_the_error_is_the_last(node, served):
    """What was stored before a put failed, and why it did."""

    def fail_later(values):
        if served.node.own.log:
            raise OSError("no more")
        return insert(values)

    insert, served.node.own.insert = served.node.own.insert, fail_later
    result = node("put", "--json", *(str(number) for number in range(6_000)))
    remark, error = map(json.loads, result.stderr.splitlines())
    assert remark.keys() == {"remark"}
    assert remark["remark"].startswith("stored before it stopped: 5000 new, 0 known in own")
    assert error["exit_code"] == result.exit_code == ExitCode.UNEXPECTED


def test_ctrl_c(served, environment):
    watching = start(served, environment, "watch", "--json", "--existing")
    served.call(served.node.own.insert, [b"a"])
    assert json.loads(watching.stdout.readline())["value"] == "61"
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=240)
    form = json.loads(err)
    assert (watching.returncode, form["exit_code"]) == (130, 130)
    assert form["type"] == "urn:hyperbloom:problem:interrupted"


def test_a_command_in_a_child_says_it_once(tmp_path, environment):
    done = subprocess.run(
        [*COMMAND, "verify", str(tmp_path / "none"), "--json"],
        env=environment, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    form = json.loads(done.stderr)
    assert done.returncode == form["exit_code"] == ExitCode.STORE
    assert form["detail"].startswith("there is no store in ")
