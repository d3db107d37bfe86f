"""hyperbloom.toml: every key right, and every key wrong in every way."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args

import pytest

from hyperbloom.cli.template import config_text
from hyperbloom.config import ConfigError, load_config, parse_config
from hyperbloom.config.api import API_KEYS
from hyperbloom.config.table import ConfigTable
from hyperbloom.discovery.dht.settings import EqualSeq
from hyperbloom.discovery.settings import DiscoverySettings
from hyperbloom.feed_words import Dialect, Noise, check_alias
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.settings import HASH_RULES, ObjectsSettings
from hyperbloom.replication.limits import Limits
from hyperbloom.replication.settings import (
    FeedSettings,
    NoisePolicy,
    SyncSettings,
    TrustSettings,
)
from hyperbloom.wire import DIALECTS

KEY = "ab" * 32
OTHER = "cd" * 32
FEED = f'[[feeds]]\nkey = "{KEY}"\n'


def parse(text, path="/srv/node/hyperbloom.toml"):
    return parse_config(text, path=Path(path))


def refusal(text):
    with pytest.raises(ConfigError) as caught:
        parse(text)
    message = str(caught.value)
    assert message.startswith("/srv/node/hyperbloom.toml: ")
    assert "\n" not in message.strip()
    return message


def test_an_empty_file_gives_the_defaults():
    config = parse("")
    assert config.path == Path("/srv/node/hyperbloom.toml")
    assert config.data == Path("/srv/node")
    assert config.identity == Path("/srv/node/identity.key")
    assert config.control_socket == Path("/srv/node/control.sock")
    assert config.store_path == Path("/srv/node/store")
    assert config.listen == ("tcp:4365",)
    assert config.advertise == ()
    assert config.log_level == "info"
    assert config.default_feed is None
    assert config.leeway == 0.0
    assert config.feeds == ()
    assert config.limits == Limits()
    assert config.sync == SyncSettings()


def test_every_key_is_taken():
    config = parse(
        f"""
        [node]
        data = "data"
        identity = "/etc/node.key"
        listen = ["tcp:4365", "tcp:4366:interface=127.0.0.1", "tcp6:1:interface=\\\\:\\\\:1"]
        advertise = ["example.org:4365", "[2001:db8::1]:4365"]
        log_level = "debug"
        leeway = "2m"
        default_feed = "blocklist"

        [[feeds]]
        key = "{KEY}"
        alias = "blocklist"
        mode = "range"
        ranges = [
            {{ start = "a", end = "é" }}, {{ start_hex = "ff00" }}, {{ end_hex = "10" }},
        ]
        dialect = "2"
        peers = ["192.0.2.1:4365"]
        issue_links = false

        [[feeds]]
        key = "{OTHER}"
        mode = "light"

        [limits]
        connections = 7
        handshake_seconds = "30s"
        close_seconds = 2

        [sync]
        interval = 5
        jitter = 0
        """
    )
    assert config.data == Path("/srv/node/data")
    assert config.identity == Path("/etc/node.key")
    assert len(config.listen) == 3
    assert config.advertise == ("example.org:4365", "[2001:db8::1]:4365")
    assert config.log_level == "debug"
    assert config.leeway == 120.0
    assert config.default_feed == "blocklist"
    assert config.feeds == (
        FeedSettings(
            key=bytes.fromhex(KEY),
            alias="blocklist",
            mode="range",
            ranges=((b"a", "é".encode()), (b"\xff\x00", None), (b"", b"\x10")),
            peers=("192.0.2.1:4365",),
            issue_links=False,
        ),
        FeedSettings(key=bytes.fromhex(OTHER), mode="light"),
    )
    assert config.limits == Limits(connections=7, handshake_seconds=30.0, close_seconds=2.0)
    assert isinstance(config.limits.close_seconds, float)
    assert config.sync == SyncSettings(interval=5.0, jitter=0.0)


def test_every_time_may_be_a_text():
    config = parse(
        """
        [node]
        leeway = "5m"
        [sync]
        interval = "60s"
        answer_wait = "1.5s"
        retry_first = "2s"
        retry_longest = "1h30m"
        """
    )
    assert config.leeway == 300.0
    assert config.sync == SyncSettings(
        interval=60.0, answer_wait=1.5, retry_first=2.0, retry_longest=5_400.0
    )
    for text in ('interval = "soon"', 'jitter = "1s"', 'false_positive = "1s"'):
        with pytest.raises(ConfigError, match=rf"\[sync\] {text.split()[0]}"):
            parse(f"[sync]\n{text}\n")
    with pytest.raises(ConfigError, match=r"must be at least 0\.05, not 0\.01"):
        parse('[sync]\ninterval = "0.01s"\n')


def test_rates_are_numbers_or_sizes():
    limits = parse(
        """
        [limits]
        send_rate = "500 KiB"
        receive_rate = "2 MB"
        peer_send_rate = 16384
        peer_receive_rate = "1.5MiB"
        """
    ).limits
    rates = (limits.send_rate, limits.receive_rate, limits.peer_send_rate, limits.peer_receive_rate)
    assert rates == (512_000, 2_000_000, 16_384, 1_572_864)
    assert parse("[limits]\nsend_rate = 0").limits.send_rate == 0
    assert "must be 0 or at least 16384, not 16383" in refusal("[limits]\nsend_rate = 16383")
    assert "'fast' is not a size" in refusal('[limits]\nsend_rate = "fast"')
    assert "must be a finite number" in refusal("[limits]\nsend_rate = nan")


def test_links_are_renewed_only_where_it_is_said():
    assert parse("").trust == TrustSettings(
        renew_links=False, renew_within=7 * 86_400.0, renew_for=30 * 86_400.0
    )
    text = '[trust]\nrenew_links = true\nrenew_within = "3d"\nrenew_for = "90d"'
    assert parse(text).trust == TrustSettings(
        renew_links=True, renew_within=3 * 86_400.0, renew_for=90 * 86_400.0
    )
    assert "at least 1" in refusal("[trust]\nrenew_for = 0")
    assert "true or false" in refusal('[trust]\nrenew_links = "yes"')


def test_a_config_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        parse("").leeway = 1.0


def test_no_listeners_are_allowed():
    assert parse("[node]\nlisten = []").listen == ()


WRONG = {
    # text: what the message must name
    "listen = []": ("listen belongs under [node]",),
    "zzz = 1": ("there is no table [zzz]", "known are node, feeds"),
    "[nodes]": ("there is no table [nodes]", "did you mean node?"),
    "[[limit]]": ("there is no table [limit]", "did you mean limits?"),
    "node = 3": ("node must be written as [node]",),
    "[[node]]": ("node must be written as [node]",),
    "[feeds]": ("feeds must be written as [[feeds]]",),
    "[node\n": ("not TOML", "line 1"),
    "a = " + "[" * 100_000: ("not TOML", "too many brackets"),
    "a = " + "9" * 5_000: ("not TOML", "too many digits"),
    "[api]\n[node]\n[api]": ("[api] is there twice, again at line 3", "under the first one"),
    "[discovery.dht]\n[discovery.dht]": ("[discovery.dht] is there twice, again at line 2",),
    # [node]
    "[node]\nlog_levle = 'info'": ("[node] log_levle", "did you mean log_level?"),
    "[node]\nzzz = 1": ("[node] zzz", "known are data, identity"),
    "[node]\ndata = 3": ("[node] data", "a text in quotes, not a whole number"),
    "[node]\ndata = ''": ("[node] data", "must be a path"),
    "[node]\nidentity = []": ("[node] identity", "a text in quotes, not a list"),
    '[node]\nidentity = "a\\u0000b"': ("[node] identity", "must be a path"),
    "[node]\nlisten = 'tcp:1'": ("[node] listen", "a list, not a text in quotes"),
    "[node]\nlisten = [4365]": ("[node] listen", "a list of texts", "a whole number"),
    "[node]\nlisten = ['4365']": ("[node] listen", "'4365' is not tcp:PORT"),
    "[node]\nlisten = ['tcp:']": ("[node] listen", "is not tcp:PORT"),
    "[node]\nlisten = ['tcp:65536']": ("[node] listen", "is not tcp:PORT"),
    "[node]\nlisten = ['udp:4365']": ("[node] listen", "is not tcp:PORT"),
    "[node]\nlisten = ['tcp:1:interfase=127.0.0.1']": ("[node] listen", "interface=ADDRESS"),
    "[node]\nlisten = ['tcp:1:interface=eth0']": ("[node] listen", "interface=ADDRESS"),
    "[node]\nlisten = ['tcp:1', 'tcp:1']": ("[node] listen", "there twice"),
    "[node]\nadvertise = ['example.org']": ("[node] advertise", "not HOST:PORT"),
    "[node]\nadvertise = ['example.org:0']": ("[node] advertise", "not HOST:PORT"),
    "[node]\nadvertise = ['a b:1']": ("[node] advertise", "not HOST:PORT"),
    "[node]\nadvertise = ['2001:db8::1:4365']": ("[node] advertise", "not HOST:PORT"),
    "[node]\nadvertise = ['[example.org]:4365']": ("[node] advertise", "not HOST:PORT"),
    "[node]\nlog_level = 'inf'": ("[node] log_level", "did you mean info?"),
    "[node]\nlog_level = 'loud'": ("[node] log_level", "known are debug, info"),
    "[node]\nlog_level = 'verbose'": ("[node] log_level", "known are debug, info, warn, error"),
    "[node]\nlog_level = true": ("[node] log_level", "not true or false"),
    "[node]\ndefault_feed = ''": ("[node] default_feed", "names no feed"),
    "[node]\ndefault_feed = 'a b'": ("[node] default_feed", "names no feed", "its alias"),
    "[node]\nleeway = -1": ("[node] leeway", "at least 0"),
    "[node]\nleeway = 3601": ("[node] leeway", "at most 3600"),
    "[node]\nleeway = nan": ("[node] leeway", "finite"),
    "[node]\nleeway = 'soon'": ("[node] leeway", "not a duration"),
    "[node]\nleeway = true": ("[node] leeway", "a number, not true or false"),
    # [[feeds]]
    "[[feeds]]": ("[[feeds]] 1 key", "is missing"),
    "feeds = [1]": ("feeds", "list of tables"),
    "[[feeds]]\nkey = 3": ("[[feeds]] 1 key", "a text"),
    "[[feeds]]\nkey = 'abc'": ("[[feeds]] 1 key",),
    f"[[feeds]]\nkey = '{'zz' * 32}'": ("[[feeds]] 1 key",),
    FEED + FEED: ("[[feeds]] 2 key", "there twice"),
    FEED + "alais = 'x'": ("[[feeds]] 1 alais", "did you mean alias?"),
    FEED + "alias = ''": ("[[feeds]] 1 alias", "no alias"),
    FEED + "alias = '-'": ("[[feeds]] 1 alias", "no alias"),
    FEED + "alias = 'own'": ("[[feeds]] 1 alias", "names the node's own feed"),
    FEED + "alias = 'a/b'": ("[[feeds]] 1 alias", "no alias"),
    FEED + f"alias = '{KEY}'": ("[[feeds]] 1 alias", "no alias"),
    FEED + f"alias = 'a'\n[[feeds]]\nkey = '{OTHER}'\nalias = 'a'": (
        "[[feeds]] 2 alias",
        "names two feeds",
    ),
    FEED + "mode = 'ful'": ("[[feeds]] 1 mode", "did you mean full?"),
    FEED + "mode = 1": ("[[feeds]] 1 mode", "a text"),
    FEED + "mode = 'range'": ("[[feeds]] 1 ranges", "at least one range"),
    FEED + "ranges = [{ start = 'a' }]": ("[[feeds]] 1 ranges", "only for mode"),
    FEED + "mode = 'range'\nranges = 'a'": ("[[feeds]] 1 ranges", "a list"),
    FEED + "mode = 'range'\nranges = ['a']": ("[[feeds]] 1 ranges", "list of tables"),
    FEED + "mode = 'range'\nranges = [{}]": ("ranges 1 start", "start, end or both"),
    FEED + "mode = 'range'\nranges = [{ begin = 'a' }]": ("ranges 1 begin", "no such key"),
    FEED + "mode = 'range'\nranges = [{ start = 1 }]": ("ranges 1 start", "a text"),
    FEED + "mode = 'range'\nranges = [{ start_hex = 'abc' }]": ("start_hex", "hex digits"),
    FEED + "mode = 'range'\nranges = [{ start = 'a', start_hex = '61' }]": (
        "ranges 1 start",
        "not both",
    ),
    FEED + "mode = 'range'\nranges = [{ start = 'b', end = 'b' }]": ("ranges 1 end", "greater"),
    FEED + "dialect = '3'": ("[[feeds]] 1 dialect", "known are 2, 1, draft"),
    FEED + "dialect = 2": ("[[feeds]] 1 dialect", "a text"),
    FEED + "peers = ['example.org']": ("[[feeds]] 1 peers", "not HOST:PORT"),
    FEED + "peers = 'example.org:1'": ("[[feeds]] 1 peers", "a list"),
    FEED + "issue_links = 'yes'": ("[[feeds]] 1 issue_links", "true or false"),
    "[node]\nnoise = 'on'": ("[node] noise", "'on' is not a known policy"),
    "[node]\nnoise = true": ("[node] noise", "a text"),
    FEED + "noise = 'requires'": ("[[feeds]] 1 noise", "did you mean require?"),
    FEED + "noise = ''": ("[[feeds]] 1 noise", "not a known policy"),
    FEED + "dialect = 'draft'\nnoise = 'require'": (
        "[[feeds]] 1 noise",
        "does not prove who sent it",
        'say "off" here',
    ),
    "[node]\nnoise = 'require'\n" + FEED + "dialect = 'draft'": (
        "[[feeds]] 1 noise",
        'is "require" under [node]',
        'say "off" for this feed',
    ),
}


@pytest.mark.parametrize("text", WRONG, ids=[text.replace("\n", " ")[-60:] for text in WRONG])
def test_a_wrong_key_is_named_in_one_sentence(text):
    message = refusal(text)
    for part in WRONG[text]:
        assert part in message, message


def numbers():
    for table, cls in (("limits", Limits), ("sync", SyncSettings)):
        for found in dataclasses.fields(cls):
            if not isinstance(found.default, bool):
                yield pytest.param(table, found, id=f"{table}.{found.name}")


def test_noise_is_preferred_unless_something_else_is_said():
    assert parse("").noise is NoisePolicy.PREFER
    assert parse(FEED).feeds[0].noise is None
    config = parse(f"[node]\nnoise = 'require'\n{FEED}noise = 'prefer'\n")
    assert (config.noise, config.feeds[0].noise) == (NoisePolicy.REQUIRE, "prefer")
    for word in ("off", "prefer"):
        text = f"[node]\nnoise = 'require'\n{FEED}dialect = 'draft'\nnoise = '{word}'\n"
        assert parse(text).feeds[0].noise == word
    assert set(get_args(Noise)) == set(NoisePolicy)


def test_tombstones_of_members_are_read_as_the_owners_with_a_remark():
    """A configuration from before starts its node, which forgets nothing that it would not now."""
    one, other = FEED, f'[[feeds]]\nkey = "{OTHER}"\n'
    config = parse(f"{one}tombstones = 'owner'\n{other}tombstones = 'members'\n")
    assert [feed.tombstones for feed in config.feeds] == ["owner", "owner"]
    (remark,) = config.remarks
    assert remark.startswith('[[feeds]] 2 tombstones: "members" is read as "owner": ')
    assert parse(FEED).remarks == ()
    for wrong in ("'member'", "1"):
        assert "[[feeds]] 1 tombstones" in refusal(f"{FEED}tombstones = {wrong}")


@pytest.mark.parametrize("wrong", ["1", '"yes"', "[]"])
def test_reconcile_is_true_or_false(wrong):
    assert "[sync] reconcile" in refusal(f"[sync]\nreconcile = {wrong}")
    assert parse("[sync]\nreconcile = false").sync.reconcile is False


@pytest.mark.parametrize(("table", "setting"), list(numbers()))
def test_every_limit_and_sync_setting_is_checked(table, setting):
    is_float = isinstance(setting.default, float)
    written = f"[{table}]\n{setting.name} = "
    assert f"[{table}] {setting.name}" in refusal(written + '"many"')
    assert f"[{table}] {setting.name}" in refusal(written + "true")
    assert f"[{table}] {setting.name}" in refusal(written + "[]")
    least = setting.metadata.get("min", 0)
    below = repr(float(least) - 1.0) if is_float else str(least - 1)
    assert "at least" in refusal(written + below)
    if is_float:
        assert "finite" in refusal(written + "inf")
        assert "finite" in refusal(written + "nan")
    else:
        assert "a whole number, not a number" in refusal(written + "1.5")
    if "max" in setting.metadata:
        assert "at most" in refusal(
            written + repr(type(setting.default)(setting.metadata["max"] * 2))
        )
    assert setting.metadata["help"]
    taken = parse(f"[{table}]\n{setting.name} = {setting.default!r}")
    assert getattr(getattr(taken, table), setting.name) == setting.default
    assert "did you mean" in refusal(f"[{table}]\n{setting.name}x = 1")


def test_a_table_reads_any_dataclass_of_settings():
    @dataclass(frozen=True)
    class Settings:
        name: str = "x"
        on: bool = False
        wait: float = field(default=1.0, metadata={"unit": "seconds", "max": 60})
        often: int = field(default=1, metadata={"min": 1})

    table = ConfigTable("f", "[t]", {"name": "y", "on": True, "wait": "1m", "often": 2})
    assert table.dataclass(Settings) == Settings("y", True, 60.0, 2)
    with pytest.raises(ConfigError, match="at most 60"):
        ConfigTable("f", "[t]", {"wait": "61s"}).dataclass(Settings)
    with pytest.raises(ConfigError, match="true or false"):
        ConfigTable("f", "[t]", {"on": 1}).dataclass(Settings)


def test_the_dialects_are_those_of_the_wire():
    assert set(get_args(Dialect)) == set(DIALECTS)


@pytest.mark.parametrize("alias", ["a", "block-list.2_b", "9" * 63])
def test_aliases(alias):
    assert check_alias(alias) == alias


# Files


def test_a_folder_stands_for_the_file_in_it(tmp_path):
    (tmp_path / "hyperbloom.toml").write_text("[node]\nleeway = 1\n")
    assert load_config(tmp_path).leeway == 1.0
    assert load_config(tmp_path).data == tmp_path


def test_paths_are_beside_a_link_and_not_beside_its_file(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "node.toml").write_text("")
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "hyperbloom.toml").symlink_to(tmp_path / "store" / "node.toml")
    assert load_config(tmp_path / "node").data == tmp_path / "node"


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match=r"no such file; make a node with `hyperbloom init DIR`"):
        load_config(tmp_path / "no.toml")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "bytes.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "bytes.toml" / "deeper")


# What init writes


def test_the_template_is_the_default_configuration():
    text = config_text()
    assert parse(text) == parse("")
    assert tomllib.loads(text) == {
        "node": {"listen": ["tcp:4365"]},
        "discovery": {},
        "sync": {},
        "trust": {},
        "limits": {},
        "objects": {},
        "api": {},
    }


def test_every_setting_of_the_template_can_be_uncommented():
    lines = []
    table = ""
    for line in config_text().splitlines():
        table = line if line.startswith("[") else table
        body = line.removeprefix("# ")
        name = body.split(" = ")[0]
        is_setting = line.startswith("# ") and " = " in body and name.isidentifier()
        # A passphrase file has no default: the one that is shown is an example.
        shown = table in ("[discovery]", "[sync]", "[trust]", "[limits]", "[objects]", "[api]")
        if is_setting and shown and name != "passphrase_file":
            line = body
        if table == "[discovery]" and line.startswith(("#     ", "# ]")):
            line = body
        lines.append(line)
    text = "\n".join(lines)
    assert parse(text) == parse("")
    assert len(tomllib.loads(text)["limits"]) == len(dataclasses.fields(Limits))
    assert len(tomllib.loads(text)["sync"]) == len(dataclasses.fields(SyncSettings))
    assert len(tomllib.loads(text)["trust"]) == len(dataclasses.fields(TrustSettings))
    settings = dataclasses.fields(DiscoverySettings)
    keys = {field.name for field in settings if "help" in field.metadata}
    assert set(tomllib.loads(text)["discovery"]) == keys
    assert len(tomllib.loads(text)["objects"]) == len(dataclasses.fields(ObjectsSettings)) - 1
    assert set(tomllib.loads(text)["api"]) == set(API_KEYS)


def test_the_template_takes_addresses():
    config = parse(config_text(listen=("tcp:1:interface=127.0.0.1",), advertise=("a.example:1",)))
    assert config.listen == ("tcp:1:interface=127.0.0.1",)
    assert config.advertise == ("a.example:1",)


def test_discovery_is_off_unless_it_is_wanted():
    assert parse("").discovery == DiscoverySettings(enabled=False)
    assert parse(config_text(discover=True)).discovery == DiscoverySettings(enabled=True)


def test_every_key_of_discovery_is_taken():
    found = parse(
        """
        [discovery]
        enabled = true
        bootstrap = ["192.0.2.1:6881"]
        port = 0
        interface = "192.0.2.7"
        server = false
        announce = false
        legacy = false
        lan = "off"
        equal_seq = "keep"
        secret = "words"

        [discovery.dht]
        max_items = 5
        packets_per_second = 10

        [discovery.swarm]
        announce_interval = "10m"

        [discovery.tracker]
        min_neighbours = 2

        [discovery.tracker.bubble_merge]
        base_interval = "5s"
        """
    ).discovery
    assert found.bootstrap == ("192.0.2.1:6881",)
    assert (found.port, found.interface, found.lan) == (0, "192.0.2.7", "off")
    assert (found.server, found.announce, found.legacy) == (False, False, False)
    assert found.equal_seq is EqualSeq.KEEP
    assert found.secret == Path("/srv/node/words")
    assert (found.dht.max_items, found.dht.packets_per_second) == (5, 10.0)
    assert found.swarm.announce_interval == 600.0
    tracker, default = found.tracker, DiscoverySettings().tracker
    assert tracker.min_neighbours == 2
    assert tracker.bubble_merge.base_interval == 5.0
    # What is left out of a table has that table's own default.
    assert tracker.bubble_merge.initial_delay == default.bubble_merge.initial_delay
    assert tracker.overlap_merge == default.overlap_merge
    dht = found.for_dht()
    assert (dht.bootstrap, dht.server, dht.max_items) == (found.bootstrap, False, 5)
    assert dht.equal_seq is EqualSeq.KEEP


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("enable = true", "did you mean enabled?"),
        ('enabled = "yes"', "must be true or false"),
        ('bootstrap = ["somewhere"]', "is not HOST:PORT"),
        ("port = 70000", "must be at most 65535"),
        ('interface = "eth0"', "is no IP address"),
        ('lan = "always"', "'always' is not a known"),
        ('equal_seq = "replace"', "'replace' is not a known"),
        ("[discovery.dht]\nmax_items = 0", "[discovery.dht] max_items: must be at least 1"),
        ("[discovery.dht]\nmax_item = 1", "did you mean max_items?"),
        ('[discovery.swarm]\nannounce_interval = "1s"', "must be at least 60"),
        ("[discovery.tracker]\npublish = false", "there is no such key"),
        (
            "[discovery.tracker.publisher]\nbase_interval = 0",
            "[discovery.tracker.publisher] base_interval: must be at least 1",
        ),
        ("dht = 1", "must be a table"),
    ],
)
def test_what_is_wrong_with_discovery_is_said(text, problem):
    assert problem in refusal(f"[discovery]\n{text}\n")


def test_the_hash_rules_are_those_of_the_pool():
    assert tuple(rule.value for rule in HashRule) == HASH_RULES


def test_the_object_pool_is_off_and_on_this_machine_alone_by_default():
    settings = parse("").objects
    assert settings == ObjectsSettings()
    assert not settings.enabled
    assert settings.listen == ("tcp:6000:interface=127.0.0.1",)
    assert settings.passphrase_file is None


def test_the_objects_table_is_read():
    settings = parse(
        """
        [objects]
        enabled = true
        listen = []
        peers = ["a.example:6000"]
        passphrase_file = "secret"
        hash_rule = "jvm"
        parents = 3
        ping_seconds = "5s"
        """
    ).objects
    assert settings == ObjectsSettings(
        enabled=True,
        listen=(),
        peers=("a.example:6000",),
        passphrase_file=Path("/srv/node/secret"),
        hash_rule="jvm",
        parents=3,
        ping_seconds=5.0,
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("enable = true", "did you mean enabled?"),
        ("enabled = 1", "true or false"),
        ('hash_rule = "jvn"', "did you mean jvm?"),
        ('peers = ["here"]', "here"),
        ('listen = ["6000"]', "6000"),
        ("parents = 0", "at least 1"),
        ("version = 2_147_483_648", "at most"),
        ('passphrase_file = ""', "path"),
        ("ping_seconds = 0", "at least 0.1"),
    ],
)
def test_what_is_wrong_in_the_objects_table_is_said(line, said):
    assert said in refusal(f"[objects]\n{line}\n")
