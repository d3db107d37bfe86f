"""The examples that have a tool read a file: units for systemd, and the program that they start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_systemd_units import tool, verified

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


def load(folder: Path) -> int:
    words = [EXAMPLES / "hyperbloom-load", folder / "file", folder / "loaded", folder / "load"]
    done = subprocess.run(
        words, capture_output=True, env={**os.environ, "PAUSE": "0"}, timeout=60, check=False
    )
    assert done.stderr == b""
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


@pytest.mark.parametrize("name", ["hyperbloom-load", "load-nftables", "load-unbound"])
def test_the_programs_are_programs(name: str) -> None:
    assert (EXAMPLES / name).stat().st_mode & 0o111 == 0o111
    shell = shutil.which("sh")
    assert shell is not None
    assert subprocess.run([shell, "-n", EXAMPLES / name], check=False).returncode == 0
