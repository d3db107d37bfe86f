"""The examples that have a tool read a file: units for systemd, and the program that they start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from test_systemd_units import tool, verified

from hyperbloom.outputs.allow import Allowed
from hyperbloom.outputs.formats import FORMATS
from hyperbloom.outputs.formats.format import Rendering

EXAMPLES = Path(__file__).parents[2] / "tap" / "examples"
#: A program that notes what it is given, and fails where it is told to.
NOTES = """\
#!/bin/sh
cat "$1" >>{folder}/notes
[ ! -e {folder}/next ] || mv {folder}/next {folder}/file
[ ! -e {folder}/broken ] || exit 7
"""


@tool("systemd-analyze")
@pytest.mark.parametrize("spoil", [False, True])
def test_systemd_has_nothing_against_the_units(tmp_path: Path, spoil: bool) -> None:
    units = []
    for path in EXAMPLES.glob("*@.*"):
        text = path.read_text().replace(
            "ExecStart=/etc/hyperbloom/hyperbloom-load", f"ExecStart={sys.executable}"
        )
        (tmp_path / path.name).write_text(text.replace("PathChanged=", "Path=") if spoil else text)
        units.append(str(tmp_path / path.name))
    assert len(units) == 3
    code, remarks = verified(units)
    assert (code == 0 and remarks == []) is not spoil


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program = tmp_path / "load"
    program.write_text(NOTES.format(folder=tmp_path))
    program.chmod(0o755)
    return tmp_path


def loaded(folder: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    words = [EXAMPLES / "hyperbloom-load", folder / "file", folder / "loaded", folder / "load"]
    more = {"PAUSE": "0", "READER": str(os.geteuid()), **environment}
    return subprocess.run(
        words, capture_output=True, env={**os.environ, **more}, timeout=240, check=False
    )


def load(folder: Path) -> int:
    done = loaded(folder)
    assert done.stderr == b""
    assert not list(folder.glob(".new*"))
    return done.returncode


def notes(folder: Path) -> str:
    path = folder / "notes"
    return path.read_text() if path.exists() else ""


def test_a_file_is_read_when_it_has_changed(folder: Path) -> None:
    assert (load(folder), notes(folder)) == (0, "")
    (folder / "file").write_text("a")
    assert (load(folder), notes(folder)) == (0, "a")
    assert (load(folder), notes(folder)) == (0, "a")
    (folder / "file").write_text("b")
    assert (load(folder), notes(folder)) == (0, "ab")


def test_what_changes_meanwhile_is_read_too(folder: Path) -> None:
    (folder / "file").write_text("a")
    (folder / "next").write_text("b")
    assert (load(folder), notes(folder)) == (0, "ab")


def test_a_failure_is_told_and_the_file_read_again(folder: Path) -> None:
    (folder / "file").write_text("a")
    (folder / "broken").touch()
    assert (load(folder), notes(folder)) == (7, "a")
    (folder / "broken").unlink()
    assert (load(folder), notes(folder)) == (0, "aa")


def refused(folder: Path, **environment: str) -> str:
    """What it says where it takes nothing, changes nothing and leaves nothing."""
    before = notes(folder)
    done = loaded(folder, **environment)
    assert done.returncode == 1
    assert notes(folder) == before
    assert not list(folder.glob(".new*"))
    return done.stderr.decode()


class TestWhatTheNodesUserMayPutThere:
    """Whoever has taken the node over, and would have root read or do more."""

    @pytest.fixture(autouse=True)
    def _read_before(self, folder: Path) -> None:
        (folder / "file").write_text("before")
        assert load(folder) == 0
        (folder / "file").unlink()

    def test_a_link(self, folder: Path) -> None:
        (folder / "secret").write_text("root's")
        (folder / "file").symlink_to("secret")
        assert "no plain file" in refused(folder)
        (folder / "file").unlink()
        (folder / "file").symlink_to("nowhere")
        assert "no plain file" in refused(folder)

    def test_a_fifo(self, folder: Path) -> None:
        os.mkfifo(folder / "file")
        assert "no plain file" in refused(folder)

    @pytest.mark.parametrize("kind", ["link", "fifo"])
    def test_one_that_comes_behind_the_look(self, folder: Path, kind: str) -> None:
        """`dd` itself neither follows nor waits: here the look finds a plain file always."""
        programs = folder / "programs"
        programs.mkdir()
        swap = "ln -s secret file" if kind == "link" else "mkfifo file"
        (programs / "dd").write_text(
            f'#!/bin/sh\ncd {folder} && rm file && {swap}\nexec {shutil.which("dd")} "$@"\n'
        )
        (programs / "dd").chmod(0o755)
        (folder / "secret").write_text("root's")
        (folder / "file").write_text("plain")
        done = loaded(folder, PATH=f"{programs}:{os.environ['PATH']}")
        assert done.returncode == 1
        assert "root's" not in notes(folder)
        assert not list(folder.glob(".new*"))

    def test_a_file_without_end(self, folder: Path) -> None:
        with (folder / "file").open("wb") as file:
            file.truncate(1 << 40)
        assert "more than 1000000 bytes" in refused(folder, MOST_BYTES="1000000")

    def test_as_long_as_it_may_be_and_one_beyond(self, folder: Path) -> None:
        (folder / "file").write_bytes(b"a" * 1_000)
        assert "more than 999 bytes" in refused(folder, MOST_BYTES="999")
        assert loaded(folder, MOST_BYTES="1000").returncode == 0
        assert notes(folder) == "before" + "a" * 1_000

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up root")
    def test_what_its_reader_may_not_read(self) -> None:
        """By a folder that became a link: root's rights are not those that count."""
        with tempfile.TemporaryDirectory(prefix="hb-") as name:
            folder = Path(name)
            folder.chmod(0o755)
            program = folder / "load"
            program.write_text(NOTES.format(folder=folder))
            program.chmod(0o755)
            (folder / "file").write_text("root's")
            (folder / "file").chmod(0o600)
            assert "cannot be read by 54321" in refused(folder, READER="54321")
            (folder / "file").chmod(0o644)
            assert loaded(folder, READER="54321").returncode == 0
            assert notes(folder) == "root's"

    def test_what_is_not_read_yet_has_no_name_that_others_find(self, folder: Path) -> None:
        """nftables.conf includes `loaded*`."""
        (folder / "file").write_text("next")
        (folder / "load").write_text(f"#!/bin/sh\nls -a {folder} >{folder}/names; exit 3\n")
        assert loaded(folder).returncode == 3
        assert [name for name in os.listdir(folder) if name.startswith("loaded")] == ["loaded"]
        names = (folder / "names").read_text().split()
        assert ".new.loaded" in names
        assert [name for name in names if name.startswith("loaded")] == ["loaded"]


class Tools:
    """The two programs, with tools that note what they are given."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("nft", "unbound-checkconf", "unbound-control"):
            (folder / name).write_text(f'#!/bin/sh\necho {name} "$1" >>{folder}/called\n')
            (folder / name).chmod(0o755)

    def load(self, name: str, content: bytes) -> tuple[int, str]:
        """Its exit code, and what it said; a tool was called if it is 0, and not otherwise."""
        file, called = self.folder / "file", self.folder / "called"
        called.unlink(missing_ok=True)
        file.write_bytes(content)
        environment = {
            "PATH": f"{self.folder}:{os.environ['PATH']}",
            "CONF": str(self.folder / "conf"),
            "TABLE": "theirs",
        }
        done = subprocess.run(
            [EXAMPLES / f"load-{name}", file], capture_output=True, env=environment, check=False
        )
        assert called.exists() is (done.returncode == 0)
        return done.returncode, done.stderr.decode()


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def rendered(name: str, values: list[bytes], *allowed: bytes) -> bytes:
    """What the node writes."""
    rendering = Rendering(set_name="theirs", allowed=Allowed(allowed), serial=1)
    return b"".join(FORMATS[name].file([values], rendering, Counter()))


ADDRESSES = [b"192.0.2.%d" % n for n in range(1, 250, 3)] + [b"2001:db8::/33", b"2001:db9::1"]
NAMES = [b"a.example", b"xn--bcher-kva.example", b"_dmarc.b.example", b"1.2.3.example"]


@pytest.mark.parametrize("count", [0, 1, 100_000])
def test_what_the_node_writes_is_loaded(tools: Tools, count: int) -> None:
    more = [b"10.%d.%d.%d" % (n >> 14, n >> 7 & 127, 2 * n & 255) for n in range(count)]
    addresses = rendered("nftables", ADDRESSES + more if count else [])
    assert tools.load("nftables", addresses) == (0, "")
    assert (tools.folder / "called").read_text() == "nft -f\n"
    names = NAMES + [b"n%d.example" % n for n in range(count)] if count else []
    unbound = rendered("unbound", names, b"www.a.example")
    assert tools.load("unbound", unbound) == (0, "")
    assert (tools.folder / "conf").read_bytes() == unbound


BAD_FOR_NFT = [
    b"flush ruleset",
    b'include "/etc/shadow"',
    b"add element inet theirs ipv4 { 192.0.2.1 }; flush ruleset",
    b"192.0.2.1, } ; flush ruleset",
    b"flush set inet filter ipv4",
    b"delete table inet theirs",
    b"add rule inet theirs input accept",
    b"192.0.2.1\0",
    b"192.0.2.1 ",
    b"\xff",
    b"",
]
BAD_FOR_UNBOUND = [
    b'include: "/etc/shadow"',
    b"remote-control:",
    b"  chroot: /",
    b'local-zone: "a.example" redirect',
    b'local-zone: "a" always_nxdomain" always_nxdomain',
    b'local-zone: "a.example" always_nxdomain # more',
    b'local-zone: "a.example" always_nxdomain\r',
    b'local-data: "a.example A 192.0.2.1"',
    b'local-zone: "a\0.example" always_nxdomain',
    b'local-zone: "b\xc3\xbccher.example" always_nxdomain',
    b"",
]


@pytest.mark.parametrize(
    ("name", "line"),
    [*(("nftables", line) for line in BAD_FOR_NFT), *(("unbound", one) for one in BAD_FOR_UNBOUND)],
)
@pytest.mark.parametrize("place", ["first", "amid", "last", "without an end"])
def test_a_line_of_another_kind_reaches_no_tool(
    tools: Tools, name: str, line: bytes, place: str
) -> None:
    lines = rendered(name, ADDRESSES if name == "nftables" else NAMES).split(b"\n")[:-1]
    at = {"first": 0, "amid": 2}.get(place, len(lines))
    lines.insert(at, line)
    end = b"" if place == "without an end" and line else b"\n"
    code, said = tools.load(name, b"\n".join(lines) + end)
    assert code == 1
    assert f"line {at + 1} is not of the format" in said
    assert said.isascii()


@pytest.mark.parametrize("name", ["nftables", "unbound"])
def test_a_file_that_cannot_be_read_is_none_that_is_right(tools: Tools, name: str) -> None:
    (tools.folder / "file").mkdir()
    done = subprocess.run(
        [EXAMPLES / f"load-{name}", tools.folder / "file"],
        capture_output=True,
        env={"PATH": f"{tools.folder}:{os.environ['PATH']}"},
        check=False,
    )
    assert done.returncode == 1
    assert not (tools.folder / "called").exists()


@pytest.mark.parametrize("name", ["hyperbloom-load", "load-nftables", "load-unbound"])
def test_the_programs_are_programs(name: str) -> None:
    assert (EXAMPLES / name).stat().st_mode & 0o111 == 0o111
    shell = shutil.which("sh")
    assert shell is not None
    assert subprocess.run([shell, "-n", EXAMPLES / name], check=False).returncode == 0
