"""What the Debian package is made of, without building it: manual pages, units, scripts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from hyperbloom.cli.root import hyperbloom
from hyperbloom.config.file import NODE_KEYS
from hyperbloom.replication.limits import Limits

ROOT = Path(__file__).resolve().parents[2]
DEBIAN = ROOT / "tap" / "debian"
SECONDS = 240


def run(*command: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        env=os.environ | more,
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The manual pages by their file names."""
    out = tmp_path_factory.mktemp("man")
    made = run(sys.executable, ROOT / "scripts" / "man-pages", out, SOURCE_DATE_EPOCH="1000000000")
    assert made.returncode == 0, made.stderr
    return {path.name: path.read_text() for path in out.iterdir()}


def names(command: click.Command, name: str) -> set[str]:
    inner = command.commands.items() if isinstance(command, click.Group) else ()
    return {name}.union(*(names(below, f"{name}-{word}") for word, below in inner))


def test_each_command_has_a_page_and_the_configuration_has_one(pages: dict[str, str]) -> None:
    commands = {f"{name}.1" for name in names(hyperbloom, "hyperbloom")}
    assert set(pages) == commands | {"hyperbloom.toml.5"}
    for name, text in pages.items():
        assert '"2001-09-09"' in text.splitlines()[0], name


def test_the_pages_say_what_there_is(pages: dict[str, str]) -> None:
    assert "\\fB\\-\\-expires\\fP" in pages["hyperbloom-invite.1"]
    assert (
        ".SH EXIT STATUS\n.TP\n\\fB0\\fP\ndone; for \\fBhas\\fP: no value" in pages["hyperbloom.1"]
    )
    tags = set(re.findall(r"^\.TP\n\\fB(\w+)\\fP$", pages["hyperbloom.toml.5"], re.MULTILINE))
    assert tags >= {*NODE_KEYS, *Limits.__dataclass_fields__}


@pytest.mark.skipif(shutil.which("man") is None, reason="man is missing")
def test_man_has_nothing_against_a_page(pages: dict[str, str], tmp_path: Path) -> None:
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
    found = run(
        "man", "--warnings", "--encoding=UTF-8", "--troff-device=utf8", "--ditroff", "--local-file",
        *sorted(tmp_path.iterdir()),
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")


def test_the_scripts_are_sound() -> None:
    for path in (*DEBIAN.glob("hyperbloom.p*"), DEBIAN / "settle"):
        checked = run("sh", "-n", path)
        assert (checked.returncode, checked.stderr) == (0, ""), path
        assert path.stat().st_mode & 0o111 or path.name != "settle", path
        if path.name != "settle":
            assert "#DEBHELPER#" in path.read_text(), path
    assert run("bash", "-n", ROOT / "scripts" / "debian-package").returncode == 0


def test_the_units_of_the_package_are_those_of_tap() -> None:
    """Their program is the only thing that is elsewhere."""
    script = (ROOT / "scripts" / "debian-package").read_text()
    (before, after) = re.findall(r"sed 's\|(\S+)\|(\S+)\|'", script)[0]
    unit = (ROOT / "tap" / "hyperbloom.service").read_text()
    assert unit.count(before) == len(re.findall(r"^Exec", unit, re.MULTILINE)) == 2
    home = re.search(r"^HOME_FOLDER = (\S+)$", (DEBIAN / "rules").read_text(), re.MULTILINE)
    assert home is not None
    assert after == f"{home[1]}/bin/"


def test_what_is_told_of_a_wrong_command_line() -> None:
    done = run(ROOT / "scripts" / "debian-package", "--revision", "x/y")
    assert done.returncode == 1
    assert "--revision: x/y is none, such as 1" in done.stderr
    assert run(ROOT / "scripts" / "debian-package", "--help").stdout.startswith("Makes a Debian")
