"""How programs of Debian packages are brought: by apt-get, or not at all, and with the reason."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import debian_packages
import pytest
from debian_packages import UnavailableError, program, unpacked


def test_without_apt_the_reason_is_told(empty_path: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="there is no apt-get to bring tool, other"):
        unpacked(["tool", "other"], tmp_path / "cache")


def test_what_apt_says_last_is_told(empty_path: Path, tmp_path: Path) -> None:
    program(empty_path, "apt-get", 'echo first >&2; echo "E: no network" >&2; exit 100')
    program(empty_path, "dpkg-deb", "exit 1")
    with pytest.raises(UnavailableError, match="apt-get: E: no network"):
        unpacked(["tool"], tmp_path / "cache")


def test_an_apt_that_hangs_is_ended(
    empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debian_packages, "APT_SECONDS", 0.2)
    program(empty_path, "apt-get", f"exec {shutil.which('sleep', path=os.defpath)} 60")
    program(empty_path, "dpkg-deb", "exit 1")
    with pytest.raises(UnavailableError, match="no answer within"):
        unpacked(["tool"], tmp_path / "cache")


def test_what_is_brought_is_unpacked_once(empty_path: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    mkdir = shutil.which("mkdir", path=os.defpath)
    program(
        empty_path,
        "apt-get",
        'case "$*" in *install*) echo "Inst tool (1.2 Debian [all])";;\n'
        "*download*tool=1.2*) : >tool_1.2_all.deb;; *) exit 1;; esac",
    )
    program(empty_path, "dpkg-deb", f'{mkdir} -p "$3/usr/bin"')
    assert unpacked(["tool"], cache) == cache / "unpacked"
    assert (cache / "unpacked" / "usr" / "bin").is_dir()
    assert list((cache / "archives").glob("*.deb")) == []
    program(empty_path, "apt-get", "exit 1")
    assert unpacked(["tool"], cache) == cache / "unpacked"


def test_a_package_that_is_no_package_leaves_nothing(empty_path: Path, tmp_path: Path) -> None:
    program(empty_path, "apt-get", 'echo "Inst tool (1.2 Debian [all])"; : >tool_1.2_all.deb')
    program(empty_path, "dpkg-deb", 'echo "no archive" >&2; exit 2')
    with pytest.raises(UnavailableError, match="dpkg-deb: no archive"):
        unpacked(["tool"], tmp_path / "cache")
    assert not (tmp_path / "cache" / "unpacked").exists()
