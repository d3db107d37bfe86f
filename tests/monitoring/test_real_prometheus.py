"""A real Prometheus scrapes real nodes: what it makes of metrics, alerts and dashboard."""

from __future__ import annotations

import http.client
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dashboards import queries
from debian_prometheus import Programs, RunningPrometheus, running
from nodes import Nodes, RealNode, free_port, real_nodes, wait_until

RULES = Path(__file__).parents[2] / "tap" / "prometheus-alerts.yml"
#: What promtool says of names that are Prometheus' own client's, not ours.
FOREIGN = ("process_",)
PATIENCE = 60.0

CONFIG = """
[api]
listen = "127.0.0.1:{api}"
[sync]
interval = 0.5
[discovery]
enabled = true
bootstrap = []
port = 0
interface = "127.0.0.1"
lan = "off"
[objects]
enabled = true
listen = ["tcp:{pool}:interface=127.0.0.1"]
"""

HOOK = """
[[hooks]]
name = "bell"
command = ["true"]
"""

SCRAPE = """
global:
  scrape_interval: 500ms
  evaluation_interval: 500ms
rule_files:
  - {rules}
scrape_configs:
"""

JOB = """
  - job_name: {name}
    metrics_path: /metrics
    authorization:
      credentials_file: {token}
    static_configs:
      - targets: ["127.0.0.1:{port}"]
    relabel_configs:
      - target_label: job
        replacement: hyperbloom
      - target_label: instance
        replacement: {name}
"""


@dataclass
class Watched:
    """An owner, a member whose link ends in three days, a third that is down, and who watches."""

    owner: RealNode
    member: RealNode
    ports: dict[str, int]
    prometheus: RunningPrometheus
    programs: Programs

    def metrics(self, name: str) -> str:
        """What a scrape of a node gives."""
        node = {"owner": self.owner, "member": self.member}[name]
        token = (node.folder / "metrics.token").read_text().strip()
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[name], timeout=PATIENCE)
        try:
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().read().decode()
        finally:
            connection.close()

    def series(self, name: str) -> set[str]:
        """The names and labels of a node's samples."""
        return {
            line.rpartition(" ")[0]
            for line in self.metrics(name).splitlines()
            if not line.startswith("#")
        }

    def alerts(self) -> dict[tuple[str, str], str]:
        """The alerts that there are: name and instance, and in which state each is."""
        return {
            (one["labels"]["alertname"], one["labels"]["instance"]): one["state"]
            for one in self.prometheus.ask("alerts")["alerts"]
        }


def made(nodes: Nodes, name: str, ports: dict[str, int], **more: object) -> RealNode:
    ports[name] = free_port()
    text = CONFIG.format(api=ports[name], pool=free_port())
    return nodes.make(name, config=text + str(more.pop("peers", "")), **more)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, programs: Programs) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    ports: dict[str, int] = {"gone": free_port()}
    with real_nodes(folder / "nodes") as nodes:
        owner = made(nodes, "owner", ports, feed="words", peers=HOOK).start()
        member = made(
            nodes,
            "member",
            ports,
            feed="notes",
            peers=f'[[feeds]]\nkey = "{owner.feed_key.hex()}"\nalias = "words"\n'
            f'peers = ["{owner.address}"]\n',
        ).start()
        with owner.client() as client:
            line = client.invite(member.key, expires=time.time() + 3 * 86_400)["invitation"]
        with member.client() as client:
            client.accept(line)
        owner.put(*(b"value %d" % number for number in range(100)))
        member.wait_for_count(owner.feed_key, 100)
        # What `export run --note` left: three days ago at the owner, a minute ago at the member.
        for node, age in ((owner, 3 * 86_400), (member, 60)):
            (node.folder / "last-export").touch()
            os.utime(node.folder / "last-export", (time.time() - age,) * 2)
        token = owner.folder / "metrics.token"
        jobs = [
            JOB.format(name=name, port=port, token=path)
            for name, port, path in (
                ("owner", ports["owner"], token),
                ("member", ports["member"], member.folder / "metrics.token"),
                ("gone", ports["gone"], token),
            )
        ]
        config = folder / "prometheus.yml"
        config.write_text(SCRAPE.format(rules=RULES) + "".join(jobs))
        with running(programs, config, folder / "prometheus") as prometheus:
            yield Watched(owner, member, ports, prometheus, programs)


def test_promtool_finds_nothing_wrong_with_the_metrics(watched: Watched) -> None:
    for name in ("owner", "member"):
        done = watched.programs.tool("check", "metrics", stdin=watched.metrics(name))
        problems = [
            line
            for line in (done.stdout + done.stderr).splitlines()
            if line and not line.startswith(FOREIGN)
        ]
        assert problems == []


def test_both_nodes_are_scraped_and_the_third_is_down(watched: Watched) -> None:
    def state() -> dict[str, str]:
        return {
            one["metric"]["instance"]: one["value"][1] for one in watched.prometheus.query("up")
        }

    wait_until(lambda: state() == {"owner": "1", "member": "1", "gone": "0"}, PATIENCE, "scraped")


def test_alerts_are_evaluated_and_the_right_ones_fire(watched: Watched) -> None:
    wanted = {
        # The end of the link is seen from both of its sides.
        ("HyperbloomLinkEndsWithinWeek", "member"): "firing",
        ("HyperbloomIssuedLinkEndsWithinWeek", "owner"): "firing",
        ("HyperbloomExportOld", "owner"): "firing",
        # For five minutes it may be a restart.
        ("HyperbloomDown", "gone"): "pending",
    }
    # A disk of the machine that runs the tests may really be full, and a busy one slow.
    machine = {"DiskNearlyFull", "DiskFull", "ReactorSlow", "CommitsSlow"}

    def alerts() -> dict[tuple[str, str], str]:
        return {
            one: state
            for one, state in watched.alerts().items()
            if one[0].removeprefix("Hyperbloom") not in machine
        }

    wait_until(lambda: wanted.items() <= alerts().items(), PATIENCE, "the alerts fire")
    assert {one for one, state in alerts().items() if state == "firing"} <= set(wanted)
    groups = watched.prometheus.ask("rules")["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}


def test_every_query_of_the_dashboard_gives_something(watched: Watched) -> None:
    left = dict.fromkeys(queries())

    def all_do() -> bool:
        # What is closed, and so has a reason, has to go on for there to be a rate.
        stranger(watched.owner)
        watched.owner.put(b"%d" % time.monotonic_ns())
        for title, query in list(left):
            if watched.prometheus.query(query):
                del left[title, query]
        return not left

    try:
        wait_until(all_do, PATIENCE, "every query gives something", longest_pause=0.5)
    except AssertionError:
        raise AssertionError(f"these give nothing: {sorted(left)}") from None


def test_a_query_of_nothing_gives_nothing(watched: Watched) -> None:
    assert watched.prometheus.query('hyperbloom_feed_values{instance=~".*",feed="none"}') == []
    with pytest.raises(OSError, match="400"):
        watched.prometheus.query("rate(hyperbloom_feed_values)")


def stranger(node: RealNode) -> None:
    """Who connects and speaks no protocol that there is."""
    with socket.create_connection(("127.0.0.1", node.port), timeout=PATIENCE) as connection:
        connection.sendall(b"\x00\x00\x40" + b"stranger" * 40)
        connection.settimeout(PATIENCE)
        while connection.recv(4_096):
            pass


def test_no_stranger_and_no_peer_adds_a_series(watched: Watched) -> None:
    before = watched.series("owner")
    for _ in range(5):
        stranger(watched.owner)
    with watched.owner.client() as client:
        client.deny(b"\xab" * 32, "a word of the operator")
    for number in range(3):
        watched.member.put(b"of a member %d" % number, feed=watched.owner.feed_key)
    watched.owner.wait_for_count(watched.owner.feed_key, 103)
    assert watched.series("owner") == before
    assert len(before) < 250
