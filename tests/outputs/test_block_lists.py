"""docs/block-lists.md as it stands: from one node's value to what another's tool does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from name_server import asked
from nodes import free_port
from output_tools import OutputTools
from typed_pages import Typist, blocks

PAGE = "block-lists.md"
#: Sends a packet from an address to 127.0.0.1, and another one behind it, which comes through.
_PACKETS = """\
import contextlib, socket, sys

def udp(address):
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, 0))
    return made

receiver, found = udp("127.0.0.1"), set()
for sender, packet in ((udp(sys.argv[1]), b"asked"), (udp("127.0.0.1"), b"other")):
    sender.sendto(packet, receiver.getsockname())
receiver.settimeout(60)
found.add(receiver.recv(9))
receiver.settimeout(0.2)
with contextlib.suppress(TimeoutError):
    found.add(receiver.recv(9))
assert b"other" in found, found
print("comes through" if b"asked" in found else "is dropped")
"""


@pytest.fixture
def programs(tools: OutputTools, tmp_path: Path) -> Path:
    """A folder with the unpacked programs of the page, which find their libraries."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("nft", "unbound", "unbound-control"):
        script = folder / name
        libraries = tools.environment["LD_LIBRARY_PATH"]
        (program,) = tools.command(name)
        script.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {program} "$@"\n')
        script.chmod(0o755)
    return folder


@pytest.fixture
def typed(programs: Path, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """A function that types a section of the page in an empty folder."""
    typists: list[Typist] = []

    def type_section(
        heading: str,
        ask: Callable[[list[str], list[str]], str | None],
        changes: dict[str, str] | None = None,
    ) -> None:
        folder = tmp_path / "empty"
        folder.mkdir()
        typist = Typist(folder, programs, ask)
        typists.append(typist)
        ports = {f"tcp:{port}:": f"tcp:{free_port()}:" for port in (4365, 4366)}
        typist.type_all(blocks(PAGE, heading), {**ports, **(changes or {})})

    yield type_section
    for typist in typists:
        typist.close()
        print(typist.logs())


def test_names(typed: Callable[..., None], upstream: int) -> None:
    port = free_port()

    def dig(words: list[str], place: list[str]) -> str | None:
        program, server, option, number, name = words
        assert (program, server, option) == ("dig", "@127.0.0.1", "-p")
        return {True: "an address", False: "NXDOMAIN", None: None}[asked(int(number), name)]

    changes = {
        "port: 5300": f"port: {port}\n  do-not-query-localhost: no",
        "-p 5300": f"-p {port}",
        "forward-addr: 9.9.9.9": f"forward-addr: 127.0.0.1@{upstream}",
    }
    typed("Names, and a resolver", dig, changes)


def test_addresses(typed: Callable[..., None]) -> None:
    def ping(words: list[str], place: list[str]) -> str:
        *_, source, target = words
        assert target == "127.0.0.1"
        command = [*place, sys.executable, "-IS", "-c", _PACKETS, source]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=120, check=True
        ).stdout.strip()

    typed("Addresses, and a packet filter", ping)
