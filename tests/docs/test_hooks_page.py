"""The programs of docs/hooks.md run, with what a hook gives them."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import free_port

from hyperbloom.config import parse_config
from hyperbloom.integrations.webhooks import signature
from hyperbloom.replication.reading.arrivals import arrival_text
from hyperbloom.store.records import LogRecord

PAGE = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
SECRET = bytes(range(32))
SECONDS = 120.0


def programs(language: str) -> list[str]:
    """The blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def lines(*values: bytes, first: int = 1) -> bytes:
    records = [
        LogRecord(number, 1_795_384_800_123_456, bytes(32), value)
        for number, value in enumerate(values, first)
    ]
    return "".join(f"{arrival_text(record, None)}\n" for record in records).encode()


def run(command: list[str], given: bytes, **environment: str) -> None:
    subprocess.run(command, input=given, env=os.environ | environment, check=True, timeout=SECONDS)


def test_the_configuration_is_one() -> None:
    (text,) = programs("toml")
    found = parse_config(text, path=Path("/etc/hyperbloom/hyperbloom.toml")).integrations
    assert [hook.name for hook in found.hooks] == ["bell", "chat"]


def test_the_line_is_one_of_an_arrival() -> None:
    line = re.search(r"^    (\{.*\})$", PAGE, re.MULTILINE)
    assert line is not None
    shown = json.loads(line[1])
    assert list(shown) == list(json.loads(lines(b"example")))
    assert bytes.fromhex(shown["value"]) == b"example"


def test_the_shell_program_writes_one_line(tmp_path: Path) -> None:
    (text,) = programs("sh")
    program, logged = tmp_path / "bell", tmp_path / "logged"
    program.write_text(text)
    program.chmod(0o755)
    logger = tmp_path / "logger"
    logger.write_text(f'#!/bin/sh\nprintf "%s|" "$@" >>{logged}\n')
    logger.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    run(
        [str(program)],
        lines(b"a", b"b"),
        PATH=path,
        HYPERBLOOM_HOOK="bell",
        HYPERBLOOM_FEED="bad-names",
    )
    assert logged.read_text() == "-t|bell|2 new values in bad-names|"


def test_the_database_has_each_value_once(tmp_path: Path) -> None:
    program, database = tmp_path / "program", tmp_path / "values.sqlite"
    program.write_text(programs("python")[0])
    for given in (lines(b"a", b"\xff"), lines(b"a", b"\xff"), lines(b"c", first=3)):
        run([sys.executable, str(program), str(database)], given)
    with contextlib.closing(sqlite3.connect(database)) as opened:
        assert opened.execute("SELECT value FROM told ORDER BY rowid").fetchall() == [
            (b"a",), (b"\xff",), (b"c",),
        ]  # fmt: skip


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The page's receiver: its port and its process."""
    program, secret = tmp_path / "receiver", tmp_path / "secret"
    program.write_text(programs("python")[1])
    secret.write_text(f"whsec_{base64.b64encode(SECRET).decode()}\n")
    port = free_port()
    command = [sys.executable, str(program), str(secret), str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        end = time.monotonic() + SECONDS
        while True:
            assert process.poll() is None
            assert time.monotonic() < end
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.02)
        try:
            yield port, process
        finally:
            process.kill()


def post(port: int, body: bytes, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    with contextlib.closing(connection):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/", body, named)
        return connection.getresponse().status


def test_the_receiver_takes_what_is_signed_and_once(
    receiver: tuple[int, subprocess.Popen[bytes]],
) -> None:
    port, process = receiver
    now = int(time.time())

    def signed(body: bytes, id_: str, at: int = now, secret: bytes = SECRET) -> dict[str, str]:
        made = signature(secret, id_, at, body)
        return {"webhook_id": id_, "webhook_timestamp": str(at), "webhook_signature": made}

    one, two = lines(b"one"), lines(b"\xfftwo", first=2)
    assert post(port, one, **signed(one, "a")) == 204
    assert post(port, one, **signed(one, "a")) == 204
    refused = [
        post(port, two),
        post(port, two, **signed(one, "b")),
        post(port, two, **signed(two, "b", secret=bytes(32))),
        post(port, two, **signed(two, "b", at=now - 3_600)),
        post(port, two, **signed(two, "b") | {"webhook_id": "c"}),
        post(port, two, **signed(two, "b") | {"webhook_signature": "\xff"}),
    ]
    assert refused == [401] * len(refused)
    assert post(port, b"", Content_Length=str(1 << 40)) == 413
    assert post(port, two, **signed(two, "b")) == 204
    assert process.stdout is not None
    assert process.stdout.readline() == b"b'one'\n"
    assert process.stdout.readline() == b"b'\\xfftwo'\n"
