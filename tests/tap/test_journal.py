"""Entries for systemd's journal: their bytes, their fields, and what happens without a journal."""

from __future__ import annotations

import io
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import Nodes, RealNode, free_port, real_nodes, wait_until
from twisted.logger import LogLevel

from hyperbloom.keys import discovery_key
from hyperbloom.process.journal import JournalObserver, encode_fields, is_journal, journal_fields
from hyperbloom.process.logs import log_observer

TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=40)
NAMES = st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)


def decoded(data: bytes) -> list[tuple[str, str]]:
    """What the journal reads, by its page on the protocol."""
    fields, rest = [], data
    while rest:
        name, end, rest = _first(rest)
        if end == b"=":
            value, _, rest = rest.partition(b"\n")
        else:
            (length,) = struct.unpack_from("<Q", rest)
            value, after = rest[8 : 8 + length], rest[8 + length :]
            assert after[:1] == b"\n"
            rest = after[1:]
        fields.append((name.decode(), value.decode()))
    return fields


def _first(data: bytes) -> tuple[bytes, bytes, bytes]:
    at = min(i for i in (data.find(b"="), data.find(b"\n")) if i >= 0)
    return data[:at], data[at : at + 1], data[at + 1 :]


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(240)

    def entry(self) -> list[tuple[str, str]]:
        data, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 20, 1)
        for descriptor in descriptors:
            with open(descriptor, "rb") as file:
                file.seek(0)
                data += file.read()
        return decoded(data)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    one = Journal(tmp_path / "journal")
    yield one
    one.socket.close()


def event(text: str = "said", **keywords: object) -> dict:
    return {
        "log_format": text,
        "log_level": LogLevel.info,
        "log_namespace": "hyperbloom.test",
        "log_time": 0.0,
        **keywords,
    }


def test_an_entry_byte_for_byte() -> None:
    fields = [("MESSAGE", "one\ntwo"), ("PRIORITY", "6")]
    assert encode_fields(fields) == b"MESSAGE\n\x07\0\0\0\0\0\0\0one\ntwo\nPRIORITY=6\n"


@given(st.lists(st.tuples(NAMES, TEXTS), min_size=1, max_size=6))
def test_no_text_brings_in_a_field_of_its_own(fields: list[tuple[str, str]]) -> None:
    assert decoded(encode_fields(fields)) == fields


def test_what_is_no_text_is_told_all_the_same() -> None:
    fields = journal_fields(event("{name}", name="a\ud800b\udcff"))
    assert dict(decoded(encode_fields(fields)))["NAME"] == "a\\ud800b\\udcff"


def test_keywords_become_fields() -> None:
    fields = dict(journal_fields(event("{peer} of {feed}", peer="192.0.2.1:7", feed="ab", n=3)))
    assert fields == {
        "MESSAGE": "192.0.2.1:7 of ab",
        "PRIORITY": "6",
        "SYSLOG_IDENTIFIER": "hyperbloom",
        "LOGGER": "hyperbloom.test",
        "PEER": "192.0.2.1:7",
        "FEED": "ab",
        "N": "3",
    }


@pytest.mark.parametrize(
    "keywords",
    [
        {"value": b"bytes may be a value"},
        {"nothing": None},
        {"error": ValueError("no text")},
        {"log_source": "ours"},
        {"long": "x" * 1_025},
        {"_trusted": "the journal's own"},
        {"ümlaut": "x"},
        {"priority": "0"},
        {"x" * 65: "name too long"},
    ],
)
def test_what_becomes_no_field(keywords: dict[str, object]) -> None:
    fields = journal_fields(event(**keywords))
    assert [name for name, _ in fields] == ["MESSAGE", "PRIORITY", "SYSLOG_IDENTIFIER", "LOGGER"]
    assert dict(fields)["PRIORITY"] == "6"


@pytest.mark.parametrize(
    ("level", "priority"), [("debug", "7"), ("info", "6"), ("warn", "4"), ("critical", "2")]
)
def test_levels_are_syslogs(level: str, priority: str) -> None:
    told = event() | {"log_level": LogLevel.levelWithName(level)}
    assert dict(journal_fields(told))["PRIORITY"] == priority


def test_an_event_reaches_the_journal(journal: Journal) -> None:
    missed: list[object] = []
    JournalObserver(missed.append, journal.path)(event(feed="ab"))
    assert ("FEED", "ab") in journal.entry()
    assert missed == []


def test_an_entry_larger_than_a_datagram_arrives(journal: Journal) -> None:
    missed: list[object] = []
    text = "long " * 200_000
    observer = JournalObserver(missed.append, journal.path)
    observer._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8_192)
    observer(event("{all}", all=text))
    assert dict(journal.entry())["MESSAGE"] == text
    assert missed == []


def test_without_a_journal_the_fallback_has_it(tmp_path: Path) -> None:
    missed: list[object] = []
    told = event()
    JournalObserver(missed.append, str(tmp_path / "gone"))(told)
    assert missed == [told]


def test_a_journal_that_reads_nothing_stops_nobody(journal: Journal) -> None:
    missed: list[object] = []
    observer = JournalObserver(missed.append, journal.path)
    for _ in range(2_000):
        observer(event("x" * 5_000))
        if missed:
            break
    assert missed
    journal.entry()
    missed.clear()
    observer(event())
    assert missed == []


def test_standard_output_is_the_journal_where_the_variable_says_so(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        found = os.fstat(stream.fileno())
        named = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        assert is_journal(stream, named)
        assert not is_journal(stream, {})
        assert not is_journal(stream, {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino + 1}"})
    assert not is_journal(io.StringIO(), named)
    assert not is_journal(None, named)


LOGS = """
import sys
from hyperbloom.process import journal
journal.JournalObserver.__init__.__defaults__ = (sys.argv[1],)
from twisted.logger import Logger, globalLogPublisher
from hyperbloom.process.logs import log_observer
observer = log_observer("warn", None, files=2, file_bytes=10_000)
globalLogPublisher.addObserver(observer)
log = Logger("hyperbloom.test")
log.info("not this")
log.warn("this of {feed}", feed="ab")
observer.set_level("info")
log.info("now this, too")
"""


def test_the_nodes_log_goes_there_and_not_to_the_stream(journal: Journal, tmp_path: Path) -> None:
    with (tmp_path / "stdout").open("wb") as stdout:
        found = os.fstat(stdout.fileno())
        named = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        subprocess.run(
            [sys.executable, "-c", LOGS, journal.path],
            stdout=stdout, env=os.environ | named, check=True, timeout=240,
        )  # fmt: skip
    assert dict(journal.entry())["FEED"] == "ab"
    assert dict(journal.entry())["MESSAGE"] == "now this, too"
    assert (tmp_path / "stdout").read_bytes() == b""


def test_a_log_file_stays_a_log_file(tmp_path: Path) -> None:
    observer = log_observer("info", str(tmp_path / "node.log"), files=2, file_bytes=10_000)
    observer(event("to the file"))
    assert "to the file" in (tmp_path / "node.log").read_text()


NODE = """
import sys
from hyperbloom.process import journal
journal.JournalObserver.__init__.__defaults__ = (sys.argv.pop(1),)
from twisted.scripts.twistd import run
run()
"""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    with real_nodes(tmp_path) as made:
        yield made


def start_with_journal(node: RealNode, journal: Journal) -> None:
    """Start a node whose standard output is the journal."""
    with node.log_path.open("wb") as stdout:
        found = os.fstat(stdout.fileno())
        named = {"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}
        arguments = ["-n", "--pidfile=", "hyperbloom", "-c", str(node.config_path)]
        node.process = subprocess.Popen(
            [sys.executable, "-c", NODE, journal.path, *arguments],
            stdout=stdout, stdin=subprocess.DEVNULL, env=os.environ | named, cwd=node.folder,
        )  # fmt: skip
    wait_until(lambda: (node.folder / "control.sock").exists(), 30, "the node is ready")
    wait_until(lambda: node.command("status").returncode == 0, 30, "the node answers")


def test_the_journal_holds_no_whole_key_of_a_feed(nodes: Nodes, journal: Journal) -> None:
    """The keys of feeds are read keys, and an owner proves itself by one."""
    owner, member = nodes.make("owner", feed="words").start(), nodes.make("member")
    feed, nobody = owner.feed_key, os.urandom(32)
    text = member.config_path.read_text()
    named = f'[[feeds]]\nkey = "{nobody.hex()}"\npeers = ["127.0.0.1:{free_port()}"]\n'
    member.config_path.write_text(f"{text}\n{named}")
    start_with_journal(member, journal)
    line = owner.command("invite", member.key.hex()).stdout
    assert member.command("join", "-", stdin=line).returncode == 0
    member.wait_for_peers(feed, 1)
    assert member.command("trust", "deny", feed.hex()).returncode == 0
    member.config_path.write_text(text)
    member.process.send_signal(signal.SIGHUP)
    entries: list[dict[str, str]] = []
    while not any("read anew" in entry["MESSAGE"] for entry in entries):
        entries.append(dict(journal.entry()))
    fields = [field for entry in entries for field in entry.items()]
    names = {text for name, text in fields if name == "FEED"}
    assert names == {discovery_key(key).hex()[:8] for key in (feed, nobody)}
    assert {text for name, text in fields if name == "PEER_KEY"} == {feed.hex()[:16]}
    whole = [field for field in fields if feed.hex() in field[1] or nobody.hex() in field[1]]
    assert whole == []
