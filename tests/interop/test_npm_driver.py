"""The driver proves itself: the reference against the reference.

What these tests show of the reference is what the tests of our own node rest on.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import npm_peer
import pytest
from npm_peer import NpmPeer

from hyperbloom.keys import Identity, discovery_key

StartNpm = Callable[[], NpmPeer]

OWNER = Identity(bytes([1]) * 32)
ALICE = Identity(bytes([2]) * 32)
BOB = Identity(bytes([3]) * 32)
STRANGER = Identity(bytes([4]) * 32)
FEED = OWNER.public_key
FAR = 4e9
LONG_AGO = 1e9
EMPTY_FILTER = {"filter": b"\0" * 8, "size": 64, "n": 2}
UNKNOWN_MESSAGE = 99


def owner_node(npm: StartNpm, **options: object) -> NpmPeer:
    peer = npm()
    peer.node(seed=OWNER.seed, feed_key=FEED, **options)
    return peer


def owner_raw(npm: StartNpm, **twists: object) -> NpmPeer:
    peer = npm()
    peer.raw(seed=OWNER.seed, feed_key=FEED, twists=twists)
    return peer


def link(peer: NpmPeer, issuer: Identity, trustee: Identity, expires: float = FAR) -> bytes:
    return peer.issue_link(seed=issuer.seed, trustee=trustee.public_key, expires=expires)


class TestNode:
    def test_two_nodes_sync_both_ways(self, npm: StartNpm) -> None:
        server, client = owner_node(npm), owner_node(npm)
        server.bulk_insert([b"a", b"both"])
        client.bulk_insert([b"b", b"both"])

        client.connect_securely(server.listen())

        assert server.until(count=3) == client.until(count=3) == 3
        assert server.values() == client.values() == [b"a", b"b", b"both"]

    def test_an_insert_is_broadcast(self, npm: StartNpm) -> None:
        server, client = owner_node(npm), owner_node(npm)
        client.connect_securely(server.listen())
        server.wait("secure")

        assert server.insert(b"new") is True
        assert server.insert(b"new") is False

        client.until(has=[b"new"])
        assert client.has([b"new", b"old"]) == [True, False]

    def test_a_light_node_watches_a_range(self, npm: StartNpm) -> None:
        server = owner_node(npm)
        light = owner_node(npm, full=False)
        server.bulk_insert([b"a1", b"b1", b"b2", b"c1"])
        watch = light.watch(b"b", b"c")

        light.connect_securely(server.listen())

        event = light.wait("values", watch=watch)
        assert [bytes.fromhex(value) for value in event["values"]] == [b"b1", b"b2"]
        assert light.count() == 2

    def test_a_member_shows_its_chain(self, npm: StartNpm) -> None:
        server, member = owner_node(npm), npm()
        token = link(member, OWNER, ALICE)
        member.node(seed=ALICE.seed, feed_key=FEED, chain=[token])

        member.connect_securely(server.listen())

        assert server.wait("secure")["chain"] == [token.hex()]
        member.insert(b"from the member")
        server.until(has=[b"from the member"])

    def test_a_reply_over_the_frame_limit_kills_the_connection(self, npm: StartNpm) -> None:
        server, client = owner_node(npm), owner_node(npm)
        server.bulk_insert([bytes([n]) * 100_000 for n in range(3)])

        connection = client.connect_securely(server.listen())

        assert "too big" in client.wait("error", connection=connection)["message"]
        client.wait("close", connection=connection)
        assert client.count() == 0


class TestLinks:
    def member_of_two_links(self, npm: StartNpm) -> tuple[NpmPeer, list[bytes]]:
        member = npm()
        chain = [link(member, OWNER, ALICE, FAR - 1), link(member, ALICE, BOB, FAR)]
        member.node(seed=BOB.seed, feed_key=FEED, chain=chain)
        return member, chain

    def test_a_link_is_issued_and_taken(self, npm: StartNpm) -> None:
        server = owner_node(npm)
        member, _ = self.member_of_two_links(npm)

        connection = member.connect_securely(server.listen())

        update = member.wait("chain-update", connection=connection)
        assert [bytes.fromhex(each) for each in update["chain"]] == list(member.chain())
        assert len(member.chain()) == 1

    def test_no_link_is_issued_when_turned_off(self, npm: StartNpm) -> None:
        server = owner_node(npm, twists={"issueLinks": False})
        member, chain = self.member_of_two_links(npm)

        member.connect_securely(server.listen())
        server.wait("secure")
        server.insert(b"sent after the Link would have been")

        member.until(count=1)
        assert member.events("chain-update") == []
        assert list(member.chain()) == chain

    def test_a_given_link_is_taken(self, npm: StartNpm) -> None:
        server = owner_raw(npm, issueLinks=False)
        member, _ = self.member_of_two_links(npm)
        member.connect_securely(server.listen())
        connection = server.wait("secure")["connection"]

        given = link(server, OWNER, BOB)
        server.send_link(connection, given)

        member.wait("chain-update")
        assert member.chain() == (given,)


class TestRefusals:
    """What the verifying side says, and that the connection ends."""

    def refusal(self, npm: StartNpm, chain: list[bytes], **twists: object) -> str:
        server = owner_node(npm)
        client = npm()
        sent = [each.hex() for each in chain]
        client.raw(seed=OWNER.seed, feed_key=FEED, twists={"handshakeChain": sent, **twists})
        client.connect(server.listen())
        message: str = server.wait("error")["message"]
        server.wait("close")
        client.wait("close")
        assert server.events("secure") == []
        return message

    def test_an_expired_chain(self, npm: StartNpm) -> None:
        expired = link(npm(), OWNER, ALICE, LONG_AGO)
        refusal = self.refusal(npm, [expired], handshakeSeed=ALICE.seed.hex())
        assert refusal == "Trust Link #0 has expired"

    def test_a_forged_chain(self, npm: StartNpm) -> None:
        forged = link(npm(), STRANGER, ALICE)
        refusal = self.refusal(npm, [forged], handshakeSeed=ALICE.seed.hex())
        assert refusal == "Failed to verify Trust Link #0"

    def test_a_handshake_signed_by_another_key(self, npm: StartNpm) -> None:
        refusal = self.refusal(npm, [], handshakeSeed=STRANGER.seed.hex())
        assert refusal == "Failed to verify signature"

    def test_another_feed(self, npm: StartNpm) -> None:
        server, client = owner_node(npm), npm()
        client.raw(seed=STRANGER.seed, feed_key=STRANGER.public_key)

        connection = client.connect(server.listen())

        assert server.wait("open")["feed"] == discovery_key(STRANGER.public_key).hex()
        assert server.wait("error")["message"] == "Feed mismatch"
        client.wait("close", connection=connection)


class TestRaw:
    def connect(
        self, npm: StartNpm, values: list[bytes], **twists: object
    ) -> tuple[NpmPeer, NpmPeer, int]:
        server, client = owner_node(npm), owner_raw(npm, **twists)
        server.bulk_insert(values)
        connection = client.connect_securely(server.listen())
        sync = client.wait("message", type="sync")["body"]
        assert sync["limit"] == 0
        assert sync["range"] is None
        return server, client, connection

    def data(self, client: NpmPeer) -> list[bytes]:
        body = client.wait("message", type="data")["body"]
        return [bytes.fromhex(value) for value in body["values"]]

    def test_unknown_messages_are_skipped_at_any_time(self, npm: StartNpm) -> None:
        early = [[UNKNOWN_MESSAGE, b"early".hex()]]
        _, client, connection = self.connect(npm, [b"a"], early=early)

        client.send_frame(connection, UNKNOWN_MESSAGE, b"late")
        client.send_request(connection, b"")

        assert self.data(client) == [b"a"]

    def test_a_range_bounds_a_sync_and_a_request(self, npm: StartNpm) -> None:
        _, client, connection = self.connect(npm, [b"a", b"b", b"c", b"d"])

        client.send_sync(connection, **EMPTY_FILTER, range=(b"b", b"d"))
        assert self.data(client) == [b"b", b"c"]
        client.send_sync(connection, **EMPTY_FILTER, limit=1, range=(b"b", None))
        assert self.data(client) == [b"b"]
        client.send_request(connection, b"b", b"d", limit=1)
        assert self.data(client) == [b"b"]
        client.send_request(connection, b"c")
        assert self.data(client) == [b"c", b"d"]

    def test_zero_is_no_limit(self, npm: StartNpm) -> None:
        _, client, connection = self.connect(npm, [b"a", b"b"])

        client.send_sync(connection, **EMPTY_FILTER, limit=0)
        assert self.data(client) == [b"a", b"b"]
        client.send_request(connection, b"", limit=0)
        assert self.data(client) == [b"a", b"b"]

    def test_data_with_a_wrong_signature_is_dropped_in_silence(self, npm: StartNpm) -> None:
        server, client, connection = self.connect(npm, [])

        client.send_data(connection, [b"unsigned"], signature=bytes(64).hex())
        client.send_data(connection, [b"signed"])

        server.until(has=[b"signed"])
        assert server.has([b"unsigned"]) == [False]
        assert server.events("error") == []

    @pytest.mark.parametrize("second_tag", [b"\x08", b"\x10"])
    def test_filter_options_end_the_connection(self, npm: StartNpm, second_tag: bytes) -> None:
        server, client, connection = self.connect(npm, [])

        client.send_frame(connection, 2, b"\x08\x40" + second_tag + b"\x02")

        assert "Decoded message is not valid" in server.wait("error")["message"]
        client.wait("close", connection=connection)

    def test_a_close_is_seen_by_the_other_side(self, npm: StartNpm) -> None:
        server, client, connection = self.connect(npm, [])

        client.close(connection)

        server.wait("socket-end")
        server.wait("close")
        client.wait("close", connection=connection)


class TestProcess:
    def test_what_nobody_caught_is_reported(self, npm: StartNpm) -> None:
        server, client = npm(), owner_raw(npm)
        server.raw(seed=STRANGER.seed, feed_key=FEED)
        client.connect(server.listen())
        with pytest.raises(npm_peer.PeerDiedError, match="Failed to verify signature"):
            server.wait("secure")
        with pytest.raises(npm_peer.PeerDiedError, match="status 70"):
            server.call("listen")

    def test_a_refused_command_names_its_reason(self, npm: StartNpm) -> None:
        peer = owner_node(npm)
        with pytest.raises(npm_peer.PeerError, match="Unknown command dance"):
            peer.call("dance")
        with pytest.raises(npm_peer.PeerError, match="MUST not be empty"):
            peer.insert(b"")
        with pytest.raises(npm_peer.PeerError, match="ECONNREFUSED"):
            peer.connect(1)

    def test_a_wait_ends_and_tells_what_came(self, npm: StartNpm) -> None:
        peer = owner_node(npm)
        with pytest.raises(npm_peer.PeerTimeoutError, match='"event": "ready"'):
            peer.wait("secure", timeout=0.05)

    def test_stopping_ends_the_process(self, npm_modules: Path) -> None:
        with NpmPeer(npm_modules) as peer:
            pid = peer.pid
            assert Path(f"/proc/{pid}").exists()
        assert not Path(f"/proc/{pid}").exists()
        with pytest.raises(npm_peer.PeerDiedError):
            peer.call("listen")


class TestInstall:
    def test_without_a_registry_the_reason_is_named(
        self, npm_modules: Path, tmp_path: Path
    ) -> None:
        nowhere = ["--registry", "http://127.0.0.1:9", "--fetch-retries=0"]
        with pytest.raises(npm_peer.UnavailableError, match="reached no registry"):
            npm_peer.install(tmp_path / "a", extra=[*nowhere, f"--cache={tmp_path / 'b'}"])

    def test_without_node_the_reason_is_named(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(npm_peer.UnavailableError, match=r"Node\.js is not installed"):
            npm_peer.install(tmp_path)

    def test_any_other_failure_is_no_skip(
        self, npm_modules: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        broken = tmp_path / "bin" / "npm"
        broken.parent.mkdir()
        broken.write_text("#!/bin/sh\necho 'npm error code EUSAGE' >&2\nexit 1\n")
        broken.chmod(0o755)
        monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
        with pytest.raises(RuntimeError, match="npm ci"):
            npm_peer.install(tmp_path / "cache")
