"""Real nodes: a denied key writes no more, and what is forgotten stays away for good."""

from __future__ import annotations

import json

import pytest
from nodes import wait_until

from hyperbloom.api.problems import Problem, ProblemKind
from hyperbloom.store.backup.verify import verify_path

QUICK = "[sync]\ninterval = 0.2\njitter = 0\nretry_first = 0.1\n"
SYNCS = 20


def run(node, *command, code=0, stdin=None):
    done = node.command(*command, stdin=stdin)
    assert done.returncode == code, (done.returncode, done.stderr)
    return done.stdout.decode()


def wait_for_syncs(node, feed, syncs):
    """Until this node has begun so many Syncs with its one peer from now on."""
    seen = set()

    def enough():
        seen.update(peer["last_sync_sent"] for peer in node.peers(feed))
        return len(seen) > syncs

    wait_until(enough, 60, f"{syncs} syncs")


def test_forgotten_values_stay_away_through_20_syncs_and_a_kill(nodes):
    owner = nodes.make("owner", config=QUICK).start()
    owner.put(*[b"%05d" % number for number in range(3_000)], b"bad one", b"bad two")
    member = nodes.invited(owner, "member", config=QUICK)
    feed = owner.key.hex()
    name = feed[:12]
    member.wait_for_count(owner.key, 3_002)
    assert run(member, "forget", "--prefix", "bad", "--dry-run").startswith("2 would be forgotten")
    assert member.count(owner.key) == 3_002
    assert run(member, "forget", "--prefix", "bad", "--yes") == f"2 forgotten in {name}, 14 bytes\n"
    assert run(member, "forget", "-", stdin=b"00001\n00002\n").startswith("2 forgotten")
    assert run(member, "forget", "--erase", "00003").startswith("1 forgotten")
    wait_for_syncs(member, owner.key, SYNCS)
    assert member.count(owner.key) == 2_997
    member.kill()
    member.start()
    member.wait_for_peers(owner.key, 1)
    wait_for_syncs(member, owner.key, SYNCS)
    assert member.count(owner.key) == 2_997
    assert owner.count(owner.key) == 3_002
    assert run(member, "forgotten") == "00001\n00002\nbad one\nbad two\n"
    (status,) = [one for one in status_of(member)["feeds"] if one["key"] == feed]
    assert (status["forgotten"], status["forgotten_hashes"]) == (4, 1)
    # Only the erased one comes with each Sync, and is kept out.
    assert status["forgotten_refused"] >= SYNCS - 1
    assert (
        run(member, "forget", "--undo", "--prefix", "") == f"4 brought back in {name}, 24 bytes\n"
    )
    run(member, "forget", "--undo", "--hashes")
    wait_until(lambda: member.digest(owner.key) == owner.digest(owner.key), 20, "equal digests")


def status_of(node):
    with node.client() as client:
        return client.status()


def test_a_denied_member_writes_no_more_and_what_it_brought_can_be_taken_out(nodes):
    owner = nodes.make("owner", config=QUICK).start()
    good = nodes.invited(owner, "good", config=QUICK)
    bad = nodes.invited(owner, "bad", config=QUICK)
    good.put(b"good", feed=owner.key)
    bad.put(*[b"bad %d" % number for number in range(3_000)], feed=owner.key)
    owner.wait_for_count(owner.key, 3_001)
    key = bad.key.hex()
    assert run(owner, "trust", "deny", key, "--reason", "spam") == f"{key} is denied\n"
    assert len(run(owner, "values", "--by", key).splitlines()) == 3_000
    first = json.loads(run(owner, "values", "--by", key, "--json").splitlines()[0])
    assert bytes.fromhex(first["value"]).startswith(b"bad ")
    wait_until(lambda: bad.key.hex() not in {p["key"] for p in owner.peers()}, 10, "closed")
    bad.put(b"late", feed=owner.key)
    assert run(owner, "forget", "--by", key, "--yes").startswith("3000 forgotten")
    assert owner.stop()
    owner.start()
    owner.wait_for_peers(owner.key, 1)
    wait_until(
        lambda: "denied" in {refusal["kind"] for refusal in status_of(owner)["refusals"]},
        60,
        "the denied one came and was refused",
    )
    assert owner.values() == [b"good"]
    assert key in run(owner, "trust", "denied")
    # An invitation does not help, for none is issued to it.
    run(owner, "invite", key, code=5)
    assert run(owner, "trust", "allow", key) == f"{key} is allowed\n"
    run(owner, "trust", "allow", key, code=1)
    owner.wait_for_count(owner.key, 2)
    assert owner.values() == [b"good", b"late"]


def test_a_kill_amid_forgetting_and_then_compact(nodes):
    node = nodes.make("node").start()
    for start in range(0, 40_000, 5_000):
        node.put(*[b"%06d" % number + b"." * 200 for number in range(start, start + 5_000)])
    with node.client() as client:
        for number, _ in enumerate(client.forget({"start": ""})):
            if number == 5:
                node.kill()
                break
    report = verify_path(node.folder / "store")
    assert report.problems == []
    assert 20_000 < report.values < 40_000
    node.start()
    left = node.count()
    assert run(node, "compact", code=7) == ""
    assert run(node, "forget", "--start", "", "--erase", "--yes").startswith(f"{left} forgotten")
    assert node.stop()
    before = (node.folder / "store" / "data.mdb").stat().st_size
    sizes = json.loads(run(node, "compact", "--json"))
    assert sizes["before"] == before
    assert sizes["after"] < before
    assert verify_path(node.folder / "store").problems == []
    node.start()
    assert node.count() == 0
    assert node.put(b"goes on") == 1


BAD = [
    ("POST", "/v1/feeds/-/forget", {}),
    ("POST", "/v1/feeds/-/forget", {"start": "zz"}),
    ("POST", "/v1/feeds/-/forget", {"start": "", "after": 5}),
    ("POST", "/v1/feeds/-/forget", {"by": "00" * 32, "start": ""}),
    ("POST", "/v1/feeds/-/forget", {"by": "00" * 32, "after": -1}),
    ("POST", "/v1/feeds/-/forget", {"values": []}),
    ("POST", "/v1/feeds/-/forget", {"values": [""]}),
    ("POST", "/v1/feeds/-/forget", {"values": ["00"] * 2_049}),
    ("POST", "/v1/feeds/-/forget", {"values": ["00"], "start": ""}),
    ("POST", "/v1/feeds/-/forget", {"values": ["00" * 200_000], "publish": True}),
    ("POST", "/v1/feeds/-/forget", {"start": "", "publish": True}),
    ("POST", "/v1/feeds/-/forget", {"values": ["00"], "erase": True, "publish": True}),
    ("POST", "/v1/feeds/-/forgotten/undo", {"start": "", "erase": True}),
    ("GET", "/v1/feeds/-/by/" + "00" * 32 + "?after=-1", None),
    ("POST", "/v1/denied", {"key": "00" * 32, "reason": "x" * 300}),
]

#: No key is called so, and too few digits mean none.
UNKNOWN = [
    ("POST", "/v1/feeds/-/forget", {"by": "00"}),
    ("GET", "/v1/feeds/-/by/nokey", None),
    ("POST", "/v1/denied", {"key": "00"}),
    ("DELETE", "/v1/denied/short", None),
]


def test_what_the_api_refuses_and_what_commands_refuse(nodes):
    node = nodes.make("node").start()
    node.put(b"one", b"two", b"pre-1", b"pre-2")
    with node.client() as client:
        for method, path, body in BAD:
            with pytest.raises(Problem) as refused:
                client.ask(method, path, body)
            assert refused.value.kind is ProblemKind.BAD_REQUEST, (path, body)
        for method, path, body in UNKNOWN:
            with pytest.raises(Problem) as refused:
                client.ask(method, path, body)
            assert refused.value.kind is ProblemKind.UNKNOWN_PEER, (path, body)
        with pytest.raises(Problem, match="own key"):
            client.deny(node.key)
    assert node.count() == 4
    for words in (
        ["forget"],
        ["forget", "one", "--prefix", "p"],
        ["forget", "--prefix", "p", "--publish"],
        ["forget", "one", "--undo", "--erase"],
        ["forget", "--hashes"],
        ["values"],
    ):
        run(node, *words, code=2)
    assert run(node, "forget", "one", "absent").splitlines() == [
        "1 forgotten in own, 3 bytes",
        "1 not here, kept from coming",
    ]
    assert json.loads(run(node, "forgotten", "--json")) == {
        "values": [b"absent".hex(), b"one".hex()],
        "count": 2,
        "hashes": 0,
    }
    assert run(node, "forgotten", "--count") == "2\n"
    assert run(node, "values", "--by", node.key.hex(), "-0") == "two\0pre-1\0pre-2\0"
    assert run(node, "values", "--by", node.key.hex(), "--hex").startswith(b"two".hex())
    assert run(node, "forget", "--publish", "pre-1").startswith("1 forgotten")
    assert any(value.startswith(b"hyperbloom-forget:1:") for value in node.values())
    assert run(node, "put", "one") == "1 new, 0 known in own\n"


def test_retention_is_a_setting_of_the_file_and_of_a_command(nodes):
    node = nodes.make("node").start()
    node.put(*[b"%03d" % number for number in range(100)])
    run(node, "feed", "join", node.key.hex(), "--retain-values", "10", "--retain-age", "90d")
    wait_until(lambda: node.count() == 10, 20, "retention")
    with node.client() as client:
        form = client.feed()
    assert (form["retain_values"], form["retain_age"]) == (10, 90 * 86_400)
    assert node.stop()
    with node.config_path.open("a") as file:
        file.write(f'[[feeds]]\nkey = "{node.key.hex()}"\nretain_values = 4\n')
    node.start()
    wait_until(lambda: node.count() == 4, 20, "retention")
    assert node.values() == [b"096", b"097", b"098", b"099"]
