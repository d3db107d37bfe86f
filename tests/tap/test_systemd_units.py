"""The units as systemd's own tools see them: without a mistake, and shut off."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TAP = Path(__file__).parents[2] / "tap"
UNITS = sorted(
    path.name for kind in ("service", "socket", "timer") for path in TAP.glob(f"*.{kind}")
)
SERVICES = [name for name in UNITS if name.endswith(".service")]
#: systemd-analyze's scale goes from 0 (shut off) to 10.
MOST_EXPOSED = 1.3
#: What systemd starts and a machine of ours has not in that place.
PROGRAM = re.compile(r"^(Exec\w+=)/opt/hyperbloom/\S+", re.MULTILINE)
OVERALL = re.compile(r"Overall exposure level for \S+: ([\d.]+)")


def tool(name: str) -> pytest.MarkDecorator:
    """Skips where it is missing; where it must not be, the test runs, and fails."""
    missing = shutil.which(name) is None and not os.environ.get("HYPERBLOOM_REQUIRE_SYSTEMD")
    return pytest.mark.skipif(missing, reason=f"{name} is missing")


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


def installed(folder: Path, spoil: str = "") -> list[str]:
    """The units in a folder, with a program that is there: systemd looks for it."""
    for name in UNITS:
        text = PROGRAM.sub(rf"\g<1>{sys.executable}", (TAP / name).read_text())
        (folder / name).write_text(text.replace("Type=notify", spoil) if spoil else text)
    return [str(folder / name) for name in UNITS]


def verified(units: list[str]) -> tuple[int, list[str]]:
    done = run("systemd-analyze", "verify", "--man=no", *units)
    return done.returncode, [line for line in done.stderr.splitlines() if "hyperbloom" in line]


def exposure(unit: Path) -> float:
    done = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(unit))
    found = OVERALL.search(done.stdout)
    assert found is not None, done.stdout + done.stderr
    return float(found[1])


def test_there_are_the_units_that_the_page_installs() -> None:
    assert sorted(UNITS) == [
        "hyperbloom-export.service",
        "hyperbloom-export.timer",
        "hyperbloom.service",
        "hyperbloom.socket",
    ]


@tool("systemd-analyze")
def test_systemd_has_nothing_against_the_units(tmp_path: Path) -> None:
    assert verified(installed(tmp_path)) == (0, [])


@tool("systemd-analyze")
def test_systemd_would_say_what_is_wrong(tmp_path: Path) -> None:
    _, lines = verified(installed(tmp_path, spoil="Tipe=notify"))
    assert any("Tipe" in line for line in lines)


@tool("systemd-analyze")
@pytest.mark.parametrize("name", SERVICES)
def test_a_service_is_shut_off(name: str) -> None:
    assert exposure(TAP / name) <= MOST_EXPOSED


@tool("systemd-analyze")
def test_a_service_without_its_sandbox_would_be_found(tmp_path: Path) -> None:
    text = (TAP / "hyperbloom.service").read_text()
    bare = tmp_path / "hyperbloom.service"
    bare.write_text("".join(re.findall(r"^(?:\[.*\]|Type=.*|ExecStart=.*)\n", text, re.MULTILINE)))
    assert exposure(bare) > MOST_EXPOSED


@tool("systemd-sysusers")
@tool("systemd-tmpfiles")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_user_and_folders_are_made(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    made = run("systemd-sysusers", f"--root={tmp_path}", str(TAP / "hyperbloom.sysusers"))
    assert (made.returncode, made.stderr.count("rror")) == (0, 0), made.stderr
    user = (tmp_path / "etc" / "passwd").read_text()
    assert re.search(r"^hyperbloom:[^:]*:\d+:\d+:hyperbloom node:/var/lib/hyperbloom:", user, re.M)
    uid, gid = (int(part) for part in user.split("hyperbloom:", 1)[1].split(":")[1:3])
    made = run(
        "systemd-tmpfiles", "--create", f"--root={tmp_path}", str(TAP / "hyperbloom.tmpfiles")
    )
    assert made.returncode == 0, made.stderr
    state, config = (tmp_path / name for name in ("var/lib/hyperbloom", "etc/hyperbloom"))
    assert (state.stat().st_mode & 0o7777, state.stat().st_uid) == (0o700, uid)
    assert (config.stat().st_mode & 0o7777, config.stat().st_uid) == (0o750, 0)
    assert config.stat().st_gid == state.stat().st_gid == gid
