"""The API, metrics and the status page of real nodes, over TCP."""

from __future__ import annotations

import http.client
import json
import os
import stat

import jsonschema
import pytest
from nodes import Nodes, free_port, wait_until
from prometheus_client.parser import text_string_to_metric_families

from hyperbloom.api.routes import ROUTES
from hyperbloom.client.client import Client

OPEN_ENDED = {"/v1/live", "/v1/feeds/{feed}/watch", "/v1/objects/watch"}
#: These nodes take part in no object pool.
NO_POOL = {"/v1/objects", "/v1/objects/{hash}", "/v1/objects/types"}


#: One of each kind. What the input lists is among the values that are put.
ONE_OF_EACH = """
[[outputs]]
name = "one"
feed = "own"
format = "lines"
path = "one.txt"
[[inputs]]
name = "one"
feed = "own"
path = "list.txt"
[[hooks]]
name = "one"
feed = "own"
command = ["true"]
"""


class Web:
    """What a program does with a real node's TCP port."""

    def __init__(self, node, port):
        self.node, self.port = node, port
        self.token_path = node.folder / "api.token"

    @property
    def token(self):
        return self.token_path.read_text().strip()

    def get(self, path, *, token=True):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            sent = {"Authorization": f"Bearer {self.token}"} if token else {}
            connection.request("GET", path, headers=sent)
            response = connection.getresponse()
            return response.status, response.headers["Content-Type"], response.read().decode()
        finally:
            connection.close()

    def samples(self):
        status, _, text = self.get("/metrics")
        assert status == 200
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """An owner with a TCP port, a member, and 300 values that both have."""
    nodes = Nodes(tmp_path_factory.mktemp("web"))
    port = free_port()
    try:
        config = f'[api]\nlisten = "127.0.0.1:{port}"\n{ONE_OF_EACH}'
        owner = nodes.make("owner", config=config)
        (owner.folder / "list.txt").write_text("value 1\n")
        owner.start()
        owner.put(*(b"value %d" % n for n in range(300)))
        member = nodes.invited(owner, "member")
        member.wait_for_count(owner.key, 300)
        yield Web(owner, port), member
    finally:
        nodes.close()


def test_the_token_is_the_owners_alone(pair):
    web, _ = pair
    assert stat.S_IMODE(web.token_path.stat().st_mode) == 0o600
    assert web.token_path.stat().st_uid == os.getuid()
    assert web.get("/v1/status", token=False)[0] == 401
    assert web.get("/health", token=False)[::2] == (200, '{"status":"ok"}')


def test_metrics_move_with_the_values(pair):
    web, member = pair
    label = web.node.key.hex()[:16]
    before = web.samples()
    member.put(b"from the member", feed=web.node.key)
    web.node.wait_for_count(web.node.key, 301)
    after = web.samples()
    assert after["hyperbloom_values_sent_total", label] >= 300
    stored = ("hyperbloom_values_stored_total", label)
    assert after[stored] - before[stored] == 1
    assert after["hyperbloom_feed_values", label] == 301
    assert after["hyperbloom_connections", "secure"] == 1
    assert after["hyperbloom_syncs_received_total", label] >= 1
    assert after["hyperbloom_sent_bytes_total",] > 300 * len(b"value 1")
    for name in (
        "hyperbloom_received_bytes_total",
        "hyperbloom_commit_seconds_count",
        "hyperbloom_operations_total",
    ):
        assert after[name,] > before[name,] > 0, name
    assert after["hyperbloom_reactor_lag_seconds_count",] > 0
    assert after["hyperbloom_store_used_bytes",] > 0


def test_answers_are_as_described(pair):
    web, _ = pair
    description = json.loads(web.get("/v1/openapi.json")[2])
    for route in ROUTES:
        if route.method != "GET" or route.is_page or route.path in OPEN_ENDED | NO_POOL:
            continue
        path = route.path.replace("{feed}", "-").replace("{key}", "ab" * 32)
        path = path.replace("{integration}", "one")
        status, kind, text = web.get(path)
        assert status == 200, (route.path, text)
        good = description["paths"][route.path]["get"]["responses"]["200"]["content"]
        assert kind.partition(";")[0] in good
        if kind == "application/json":
            schema = {**good[kind]["schema"], "components": description["components"]}
            jsonschema.validate(json.loads(text), schema)


def test_outputs_inputs_and_hooks_are_run_and_shown(pair):
    web, _ = pair
    command = web.node.command
    for kind in ("output", "input", "hook"):
        done = command(kind, "run", "one", "--force")
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.startswith(f"{kind} one ran: ".encode())
        with web.node.client() as client:
            form = client.integration(kind, "one")
        assert (form["feed"], form["problem"], form["state"]) == ("own", None, "idle")
        assert form["figures"]
        assert form["last_success"] is not None
        samples = web.samples()
        assert samples["hyperbloom_integration_failing", kind, "one"] == 0
        assert samples["hyperbloom_integration_runs_total", kind, "one"] >= 1
        for figure in form["figures"]:
            assert (f"hyperbloom_{kind}_{figure}", "one") in samples
    assert "value 0\nvalue 1\n" in (web.node.folder / "one.txt").read_text()
    assert b"outputs\t1\ninputs\t1\nhooks\t1\n" in command("status").stdout


def test_a_run_that_fails_ends_in_a_sentence(pair):
    web, _ = pair
    source = web.node.folder / "list.txt"
    listed = source.read_text()
    source.unlink()
    try:
        done = web.node.command("input", "run", "one")
        assert (done.returncode, done.stdout) == (1, b"")
        said = done.stderr.decode()
        assert said.startswith("hyperbloom: the input one failed: ")
        assert said.count("\n") == 1
        assert (
            f"input one: {said.partition('failed: ')[2]}"
            in web.node.command("status").stdout.decode()
        )
        assert web.samples()["hyperbloom_integration_failing", "input", "one"] == 1
        assert web.get("/health", token=False)[0] == 200
    finally:
        source.write_text(listed)
    assert web.node.command("input", "run", "one").returncode == 0
    assert web.samples()["hyperbloom_integration_failing", "input", "one"] == 0


def test_the_page_is_in_the_package_and_the_code_in_no_log(pair):
    web, _ = pair
    assert "status.js" in web.get("/", token=False)[2]
    assert "followNode(" in web.get("/scripts/status.js", token=False)[2]
    done = web.node.command("status", "--web")
    url = done.stdout.decode().strip()
    assert url.startswith(f"http://127.0.0.1:{web.port}/#")
    with Client.over_tcp(f"127.0.0.1:{web.port}", web.token_path) as client:
        assert client.count()["count"] >= 300
    log = web.node.log_path.read_text()
    assert f"The API is at 127.0.0.1:{web.port}" in log
    for secret in (web.token, url.partition("#")[2], web.node.identity.seed.hex(), "value 7"):
        assert secret not in log


def test_a_lost_member_is_counted(pair):
    web, member = pair
    before = web.samples()
    member.stop()
    wait_until(
        lambda: web.samples()["hyperbloom_connections", "secure"] == 0, 30, "the member is gone"
    )
    after = web.samples()
    # What closed connections have moved stays in the sums.
    for name in ("hyperbloom_sent_bytes_total", "hyperbloom_received_bytes_total"):
        assert after[name,] >= before[name,]
    label = web.node.key.hex()[:16]
    sent = ("hyperbloom_values_sent_total", label)
    assert after[sent] >= before[sent] >= 300
