"""/health and /metrics: read as a monitoring system reads them."""

from __future__ import annotations

import json
import math
import os

import pytest
from crowd import Crowded
from fake_integrations import an_integration
from fake_node import disk_full
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_parse
from prometheus_client.parser import text_string_to_metric_families as parse
from twisted.internet.task import Clock

from hyperbloom.api.monitoring.metrics import ExportCollector, make_registry
from hyperbloom.api.monitoring.reactor_lag import LOOK_SECONDS, LagMeter
from hyperbloom.replication.settings import FeedSettings
from hyperbloom.store.histogram import DURATIONS, Histogram


def scrape(served, accept="text/plain", parser=parse):
    status, head, body = served.ask_tcp("/metrics", token=served.token, headers={"Accept": accept})
    assert status == 200
    return head["Content-Type"], list(parser(body.decode()))


def samples(families):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def test_metrics_are_read_by_the_parser_of_prometheus(over_tcp):
    over_tcp.node.add(FeedSettings(key=b"f" * 32, alias='odd "na\\me"'[:3] + "x"))
    over_tcp.node.commits.committed([1, 2], 0.004)
    over_tcp.node.commits.committed([disk_full()], 0.2)
    kind, families = scrape(over_tcp)
    assert kind.startswith("text/plain")
    found = samples(families)
    own = ("feed", over_tcp.node.own.key.hex()[:16])
    assert found["hyperbloom_connections", ("state", "secure")] == 1
    assert found["hyperbloom_connections", ("state", "handshake")] == 2
    assert found["hyperbloom_connections_opened_total", ("way", "dialled")] == 4
    assert found["hyperbloom_connections_refused_total", ("reason", "expired")] == 2
    assert found["hyperbloom_connections_refused_total", ("reason", "denied")] == 0
    assert found["hyperbloom_connections_secured_total", ("stream", "protected")] == 23
    assert found["hyperbloom_connections_secured_total", ("stream", "plain")] == 24
    assert found["hyperbloom_denied_keys",] == 25
    assert found["hyperbloom_received_bytes_total",] == 7_000
    assert found["hyperbloom_sent_bytes_total",] == 8_000
    assert found["hyperbloom_values_received_total", own] == 10
    assert found["hyperbloom_values_stored_total", own] == 11
    assert found["hyperbloom_values_sent_total", ("feed", "oddx")] == 12
    assert found["hyperbloom_values_refused_total", own, ("reason", "full")] == 9
    assert found["hyperbloom_feed_peers", own] == 1
    assert found["hyperbloom_feed_peers_unprotected", own] == 1
    assert found["hyperbloom_sync_seconds_total", own] == 1.5
    assert found["hyperbloom_sync_tested_total", own] == 16
    assert found["hyperbloom_sketches_asked_total", own] == 17
    assert found["hyperbloom_sketch_symbols_total", own] == 18
    assert found["hyperbloom_sketch_bytes_total", own] == 19
    assert found["hyperbloom_sketch_differences_total", own] == 20
    assert found["hyperbloom_ids_told_total", own] == 21
    assert found["hyperbloom_values_pulled_total", own] == 22
    assert found["hyperbloom_values_refused_total", own, ("reason", "forgotten")] == 0
    assert found["hyperbloom_feed_trusted", own] == 1
    assert found["hyperbloom_feed_chain_expiry_timestamp_seconds", own] == 1_900_000_000
    assert found["hyperbloom_feed_issued_links", own] == 26
    assert found["hyperbloom_feed_issued_link_expiry_timestamp_seconds", own] == 1_800_000_000
    assert found["hyperbloom_feed_peers_in_sync", own] == 27
    assert found["hyperbloom_feed_peers_differing", own] == 28
    assert found["hyperbloom_feed_last_sync_timestamp_seconds", own] == 1_750_000_000
    assert found["hyperbloom_sync_rounds_total", own, ("way", "sketch")] == 29
    assert found["hyperbloom_sync_rounds_total", own, ("way", "filters")] == 0
    assert found["hyperbloom_sync_round_bytes_total", own, ("way", "sketch")] == 30
    assert found["hyperbloom_feed_forgotten_values", own] == 31
    assert found["hyperbloom_feed_forgotten_hashes", own] == 32
    assert found["hyperbloom_retention_forgotten_total", own] == 33
    assert found["hyperbloom_disk_free_bytes",] == 34
    assert found["hyperbloom_disk_size_bytes",] == 35
    assert found["hyperbloom_store_free_bytes",] == 2
    assert found["hyperbloom_queue_bytes",] == 17
    out = ("direction", "out")
    assert found["hyperbloom_rate_limit_bytes", out, ("whose", "node")] == 36
    assert ("hyperbloom_rate_limit_bytes", out, ("whose", "peer")) not in found, "not set"
    assert found["hyperbloom_rate_held_seconds_total", out] == 37
    assert found["hyperbloom_rate_held_seconds_total", ("direction", "in")] == 0
    assert found["hyperbloom_commit_seconds_count",] == 2
    assert found["hyperbloom_commit_seconds_bucket", ("le", "0.005")] == 1
    assert found["hyperbloom_commit_seconds_bucket", ("le", "+Inf")] == 2
    assert found["hyperbloom_commit_seconds_sum",] == pytest.approx(0.204)
    assert found["hyperbloom_operations_total",] == 3
    assert found["hyperbloom_operations_failed_total",] == 1
    assert ("hyperbloom_reactor_lag_seconds_count",) in found
    assert found["process_resident_memory_bytes",] > 0


def test_discovery_is_told_of_where_it_is_on(reactor_thread, over_tcp):
    assert ("hyperbloom_dht_nodes",) not in samples(scrape(over_tcp)[1])
    served = Crowded(reactor_thread, feeds=2, peers=2)
    try:
        found = samples(scrape(served)[1])
    finally:
        served.close()
    assert found["hyperbloom_dht_nodes",] == 142
    assert found["hyperbloom_dht_good_nodes",] == 128
    assert found["hyperbloom_dht_events_total", ("event", "asked")] == 4


def test_outputs_inputs_and_hooks_are_told_of_where_there_are_some(over_tcp):
    names = {name for name, *_ in samples(scrape(over_tcp)[1])}
    assert not [name for name in names if "integration" in name]
    over_tcp.integrations.shown = [
        an_integration(),
        an_integration(
            "output", "proxy", "working", problem="no", last_success=None, figures={"values": 1}
        ),
        an_integration("input", "resolver", "held", problem="look", figures={"entries": 5}),
    ]
    found = samples(scrape(over_tcp)[1])
    output, proxy, an_input = (
        (("kind", kind), ("name", name))
        for kind, name in (("output", "resolver"), ("output", "proxy"), ("input", "resolver"))
    )
    about = "hyperbloom_integration"
    assert [found[f"{about}_failing", *of] for of in (output, proxy, an_input)] == [0, 1, 1]
    assert [found[f"{about}_held", *of] for of in (output, proxy, an_input)] == [0, 0, 1]
    assert found[f"{about}_runs_total", *output] == 3
    assert found[f"{about}_failures_total", *output] == 1
    assert found[f"{about}_last_success_timestamp_seconds", *output] == 1_000_000
    assert (f"{about}_last_success_timestamp_seconds", *proxy) not in found, "none yet"
    assert found["hyperbloom_output_values", ("name", "resolver")] == 7
    assert found["hyperbloom_output_values", ("name", "proxy")] == 1
    assert found["hyperbloom_output_left_out", ("name", "resolver")] == 2
    assert ("hyperbloom_output_left_out", ("name", "proxy")) not in found
    assert found["hyperbloom_input_entries", ("name", "resolver")] == 5


def test_every_family_is_described_and_named_once(over_tcp):
    over_tcp.integrations.shown = [an_integration(), an_integration("hook")]
    _, families = scrape(over_tcp)
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert family.documentation.endswith("."), family.name
        assert family.type != "unknown", family.name
        assert family.name.startswith(("hyperbloom", "process_"))


def test_openmetrics_is_given_to_who_asks_for_it(over_tcp):
    kind, families = scrape(over_tcp, "application/openmetrics-text; version=1.0.0", open_parse)
    assert kind.startswith("application/openmetrics-text")
    assert ("hyperbloom_operations_total",) in samples(families)


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text; version=abc", "text/plain; version=1.x", "é;;=,"]
)
def test_who_asks_for_a_version_that_is_none_gets_the_plain_text(over_tcp, accept):
    kind, families = scrape(over_tcp, accept)
    assert kind.startswith("text/plain; version=0.0.4")
    assert ("hyperbloom_operations_total",) in samples(families)


def test_metrics_need_the_token_and_health_does_not(over_tcp):
    assert over_tcp.ask_tcp("/metrics")[0] == 401
    status, _, body = over_tcp.ask_tcp("/health")
    assert (status, body) == (200, b'{"status":"ok"}')
    assert over_tcp.ask_tcp("/health", headers={"Host": "evil.example"})[0] == 403


def test_the_token_for_metrics_opens_them_and_nothing_else(over_tcp):
    bearer = {"Authorization": f"Bearer {over_tcp.metrics_token}"}
    connection = over_tcp.tcp_connection()
    connection.request("GET", "/metrics", headers=bearer)
    assert connection.getresponse().read().startswith(b"# HELP ")
    for method, path in (
        ("GET", "/v1/status"),
        ("GET", "/v1/feeds"),
        ("GET", "/v1/feeds/-/values"),
        ("GET", "/v1/feeds/-/watch"),
        ("POST", "/v1/reload"),
        ("DELETE", "/v1/feeds/own"),
    ):
        connection = over_tcp.tcp_connection()
        connection.request(method, path, headers=bearer)
        response = connection.getresponse()
        problem = json.loads(response.read())
        assert response.status == 403, path
        assert problem["detail"] == "the token for metrics may read /metrics, and nothing else"


def test_the_age_of_the_last_export(tmp_path):
    note = tmp_path / "last-export"
    registry = make_registry([ExportCollector(note)])
    name = "hyperbloom_export_success_timestamp_seconds"
    assert registry.get_sample_value(name) is None
    note.write_text("exported\n")
    os.utime(note, (1_800_000_000, 1_800_000_000))
    assert registry.get_sample_value(name) == 1_800_000_000


def test_health_tells_of_a_store_that_cannot_be_written(over_tcp):
    over_tcp.node.broken_store = str(disk_full())
    assert over_tcp.ask_tcp("/health")[0] == 503
    assert over_tcp.ask_tcp("/health")[2] == b'{"status":"failing"}'
    over_tcp.node.broken_store = None
    assert over_tcp.ask_tcp("/health")[0] == 200


def test_a_histogram_adds_up():
    found = Histogram((1, 10))
    for amount in (0.5, 1, 1.5, 10, 11, math.inf):
        found.observe(amount)
    assert found.cumulative() == [2, 4, 6]
    assert found.total == math.inf
    assert list(DURATIONS) == sorted(DURATIONS)


def test_the_lag_is_how_late_a_call_comes():
    clock = Clock()
    meter = LagMeter(clock)
    meter.start()
    clock.advance(LOOK_SECONDS)
    clock.advance(LOOK_SECONDS + 0.3)
    assert meter.seconds.cumulative()[-1] == 2
    assert meter.seconds.total == pytest.approx(0.3)
    meter.stop()
    clock.advance(10)
    assert meter.seconds.cumulative()[-1] == 2
    assert not clock.getDelayedCalls()
