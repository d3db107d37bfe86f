"""A configuration read anew: what changes at once, what is only named, what is refused whole."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, real_nodes, wait_until

from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.config import Config, parse_config
from hyperbloom.connections.limits import BURST_SECONDS
from hyperbloom.exit_codes import ExitCode
from hyperbloom.feed_keys import FeedKeys
from hyperbloom.keys import Identity
from hyperbloom.service.reload import differences

PATIENCE = 240.0
FEED, OTHER = "11" * 32, "22" * 32


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


@pytest.fixture
def node(nodes: Nodes) -> RealNode:
    return nodes.make("node").start()


def rewrite(
    node: RealNode, *, listen: str = "", more: str = "", level: str = "debug", keys: str = ""
) -> None:
    listen = listen or f"tcp:{node.port}:interface=127.0.0.1"
    node.config_path.write_text(
        f'[node]\nlisten = ["{listen}"]\nlog_level = "{level}"\n{keys}\n{more}\n'
    )


def reloaded(node: RealNode) -> tuple[list[str], list[str]]:
    with node.client() as client:
        form = client.reload()
    return form["changed"], form["needs_restart"]


def feeds(node: RealNode) -> dict[str, dict]:
    with node.client() as client:
        return {feed["key"]: feed for feed in client.status()["feeds"]}


def a_feed(key: str = FEED, alias: str = "list", more: str = "") -> str:
    return f'[[feeds]]\nkey = "{key}"\nalias = "{alias}"\n{more}\n'


def test_an_unchanged_file_changes_nothing(node: RealNode) -> None:
    assert reloaded(node) == ([], [])


def test_a_feed_comes_changes_and_is_let_go(node: RealNode) -> None:
    rewrite(node, more=a_feed())
    assert reloaded(node) == (["feed list"], [])
    assert feeds(node)[FEED]["alias"] == "list"
    rewrite(node, more=a_feed(alias="renamed", more='peers = ["127.0.0.1:1"]'))
    assert reloaded(node) == (["feed renamed"], [])
    assert feeds(node)[FEED]["dials"] == ["127.0.0.1:1"]
    assert node.command("feed", "leave", "renamed", "--yes").returncode != 0
    rewrite(node)
    assert reloaded(node) == (["feed renamed"], [])
    # An edit of the file drops no values; what it names no more can be left by hand.
    assert FEED in feeds(node)
    assert node.command("feed", "leave", "renamed", "--yes").returncode == 0
    assert FEED not in feeds(node)


def test_streams_go_by_another_policy_at_once(nodes: Nodes) -> None:
    """And who has spoken noise is let in without it once the operator says so."""
    owner = nodes.make("owner").start()
    member = nodes.invited(owner, "member")
    member.wait_for_peers(owner.key, 1)
    assert [peer["protected"] for peer in member.peers(owner.key)] == [True]
    rewrite(member, more='noise = "off"')
    assert reloaded(member) == (["[node] noise"], [])
    unprotected = f"hyperbloom peers forget-noise {member.key.hex()[:16]}"

    def is_refused() -> bool:
        with owner.client() as client:
            return any(unprotected in found["reason"] for found in client.status()["refusals"])

    wait_until(is_refused, PATIENCE, "the owner refuses it")
    assert owner.peers(owner.key) == []
    keys = owner.command("peers", "noise").stdout.decode()
    assert keys.splitlines()[1].startswith(member.key.hex())
    forgotten = owner.command("peers", "forget-noise", member.key.hex()[:16])
    assert forgotten.returncode == 0, forgotten.stderr
    owner.wait_for_peers(owner.key, 1)
    assert [peer["protected"] for peer in owner.peers(owner.key)] == [False]
    rewrite(member, more='noise = "prefer"')
    assert reloaded(member) == (["[node] noise"], [])
    wait_until(
        lambda: [peer["protected"] for peer in owner.peers(owner.key)] == [True],
        PATIENCE,
        "the stream is protected again",
    )


def test_peers_of_the_file_are_dialled_and_others_let_go(nodes: Nodes) -> None:
    owner = nodes.make("owner").start()
    member = nodes.invited(owner, "member")
    member.wait_for_peers(owner.key, 1)
    rewrite(member, more=a_feed(owner.key.hex(), "owner", 'peers = ["127.0.0.1:1"]'))
    assert reloaded(member) == (["feed owner"], [])
    member.wait_for_peers(owner.key, 0)
    rewrite(member, more=a_feed(owner.key.hex(), "owner", f'peers = ["{owner.address}"]'))
    assert reloaded(member) == (["feed owner"], [])
    member.wait_for_peers(owner.key, 1)
    owner.put(b"one")
    member.wait_for_count(owner.key, 1)


def test_the_default_feed_is_what_the_file_says(node: RealNode, nodes: Nodes) -> None:
    """It does not move by itself: where several are in use, the file has to say which."""
    pair = Identity(b"p" * 32)
    FeedKeys(node.folder / "feed-keys").write(pair, "words")
    assert node.command("feed", "adopt", str(next((node.folder / "feed-keys").iterdir()))).stdout
    assert b"1 new, 0 known in words" in node.command("put", "--feed", "words", "a").stdout
    assert b"1 new, 0 known in words" in node.command("put", "b").stdout
    assert b"1 new, 0 known in own" in node.command("put", "--feed", "own", "mine").stdout
    lost = node.command("put", "c")
    assert lost.returncode == 8
    assert b"it has own, words" in lost.stderr
    rewrite(node, keys='default_feed = "words"')
    assert reloaded(node) == (["[node] default_feed"], [])
    assert b"1 new, 0 known in words" in node.command("put", "c").stdout
    rewrite(node, keys='default_feed = "gone"')
    reloaded(node)
    assert b"default_feed under [node]: there is no feed 'gone'" in node.command("put", "d").stderr
    node.stop()
    assert "default_feed under [node]" in node.start().log_path.read_text()


def test_limits_hold_at_once(node: RealNode) -> None:
    rewrite(node, more="[limits]\nfeed_values = 1\n[sync]\ninterval = 5")
    assert reloaded(node) == (["[limits] feed_values", "[sync] interval"], [])
    node.put(b"one")
    assert feeds(node)[node.key.hex()]["is_full"] is True
    rewrite(node)
    assert reloaded(node) == (["[limits] feed_values", "[sync] interval"], [])
    assert feeds(node)[node.key.hex()]["is_full"] is False


def test_the_log_level_changes(node: RealNode) -> None:
    rewrite(node, level="error")
    assert reloaded(node) == (["[node] log_level"], [])
    before = node.log_path.read_text()
    assert reloaded(node) == ([], [])
    assert node.log_path.read_text() == before
    rewrite(node, level="info")
    reloaded(node)
    assert reloaded(node) == ([], [])
    assert "changed: nothing" in node.log_path.read_text().removeprefix(before)


def test_what_needs_a_restart_is_named_until_there_is_one(node: RealNode) -> None:
    rewrite(node, listen="tcp:0:interface=127.0.0.1", more="[discovery]\nport = 5")
    named = ["[node] listen", "[discovery] port"]
    assert reloaded(node) == ([], named)
    assert reloaded(node) == ([], named)
    assert f"A restart is needed for what else has changed: {', '.join(named)}" in (
        node.log_path.read_text()
    )
    with node.client() as client:
        assert client.status()["listening"] == [node.address]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[nodes]\n", "did you mean node?"),
        ("[node\n", "not TOML"),
        (f"{a_feed()}[limits]\nstrikes = 0\n", "must be at least 1"),
        ('[node]\nidentity = "none.key"\n', "none.key"),
    ],
)
def test_a_mistake_changes_nothing(node: RealNode, text: str, why: str) -> None:
    before = feeds(node)
    node.config_path.write_text(text)
    with node.client() as client, pytest.raises(Problem) as refused:
        client.reload()
    assert refused.value.kind is ProblemKind.BAD_CONFIG
    assert why in refused.value.detail
    assert f"the old one holds: {refused.value.detail}" in node.log_path.read_text()
    assert feeds(node) == before


def test_another_key_needs_a_restart(node: RealNode, nodes: Nodes) -> None:
    other = nodes.make("other")
    rewrite(node, more="")
    key = node.folder / "identity.key"
    key.write_text((other.folder / "identity.key").read_text())
    assert reloaded(node) == ([], ["[node] identity"])


def test_the_command_says_what_came_of_it(node: RealNode) -> None:
    rewrite(node, listen="tcp:0:interface=127.0.0.1", more=a_feed())
    done = node.command("reload")
    assert done.returncode == 0
    assert done.stdout == b"Changed: feed list\n"
    assert done.stderr == b"hyperbloom: a restart is needed for [node] listen\n"
    rewrite(node, level="loud")
    done = node.command("reload", "-c", str(node.config_path))
    assert done.returncode == ExitCode.CONFIG
    assert b"'loud' is not a known level" in done.stderr


def test_the_command_says_that_no_node_runs(node: RealNode) -> None:
    assert node.stop()
    assert node.command("reload").returncode == ExitCode.UNREACHABLE


def test_two_at_once_are_done_one_after_the_other(node: RealNode) -> None:
    rewrite(node, more=a_feed() + a_feed(OTHER, "other"))
    for _ in range(2):
        node.process.send_signal(1)
    wait_until(lambda: set(feeds(node)) >= {FEED, OTHER}, PATIENCE, "both feeds are there")
    assert reloaded(node) == ([], [])


def test_every_field_of_a_configuration_is_compared(tmp_path: Path) -> None:
    old = parse_config("", path=tmp_path / "hyperbloom.toml")
    for field in dataclasses.fields(Config):
        if field.name not in ("path", "feeds"):
            new = dataclasses.replace(old, **{field.name: object()})
            assert len(list(differences(old, new))) == 1, field.name


def test_rates_are_taken_over_and_hold(nodes: Nodes) -> None:
    """N bytes at a rate take at least as long as it says, less a burst."""
    rate, size = 131_072, 600 * 1_000
    owner = nodes.make("owner").start()
    member = nodes.invited(owner, "member")
    member.wait_for_peers(owner.key, 1)
    rewrite(owner, more=f'[limits]\nsend_rate = "{rate // 1024} KiB"')
    assert reloaded(owner) == (["[limits] send_rate"], [])
    with owner.client() as client:
        assert client.status()["sending"]["rate"] == rate
    begun = time.monotonic()
    owner.put(*(b"%03d" % number + bytes(997) for number in range(600)))
    member.wait_for_count(owner.key, 600)
    assert time.monotonic() - begun >= (size - rate * BURST_SECONDS) / rate
    with owner.client() as client:
        assert client.status()["sending"]["held_seconds"] > 0
    shown = owner.command("status").stdout.decode()
    assert "[limits]: the node sends at most 128 KiB/s" in shown
    rewrite(owner)
    assert reloaded(owner) == (["[limits] send_rate"], [])
    owner.put(b"last")
    member.wait_for_count(owner.key, 601)
    assert len(member.peers(owner.key)) == 1, "the connection stayed"
