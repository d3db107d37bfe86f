"""How Prometheus is brought: from the PATH, by apt-get, or not at all, and then with the reason."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import debian_prometheus
import pytest
from debian_prometheus import Programs, UnavailableError, install


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(path: Path, name: str, text: str) -> Path:
    file = path / name
    file.write_text(f"#!{shutil.which('sh', path=os.defpath)}\n{text}\n")
    file.chmod(0o755)
    return file


def test_what_the_machine_has_is_taken(path: Path, tmp_path: Path) -> None:
    made = Programs(program(path, "prometheus", ""), program(path, "promtool", "echo $1"))
    assert install(tmp_path / "cache") == made
    assert made.tool("check").stdout == "check\n"
    assert not (tmp_path / "cache").exists()


def test_without_apt_the_reason_is_told(path: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="neither Prometheus nor apt-get is here"):
        install(tmp_path / "cache")


def test_what_apt_says_last_is_told(path: Path, tmp_path: Path) -> None:
    program(path, "apt-get", 'echo first >&2; echo "E: no network" >&2; exit 100')
    program(path, "dpkg-deb", "exit 1")
    with pytest.raises(UnavailableError, match="the package prometheus: E: no network"):
        install(tmp_path / "cache")


def test_an_apt_that_hangs_is_ended(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian_prometheus, "APT_SECONDS", 0.2)
    program(path, "apt-get", f"exec {shutil.which('sleep', path=os.defpath)} 60")
    program(path, "dpkg-deb", "exit 1")
    with pytest.raises(UnavailableError, match="no answer within"):
        install(tmp_path / "cache")


def test_a_package_that_is_no_package_leaves_nothing(path: Path, tmp_path: Path) -> None:
    program(path, "apt-get", ": > prometheus_1_all.deb")
    program(path, "dpkg-deb", 'echo "no archive" >&2; exit 2')
    with pytest.raises(UnavailableError, match="cannot be unpacked: no archive"):
        install(tmp_path / "cache")
    assert [one.name for one in (tmp_path / "cache").iterdir()] == ["lock"]
