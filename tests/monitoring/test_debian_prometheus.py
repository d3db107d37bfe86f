"""How Prometheus is brought: from the PATH, else as a Debian package."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from debian_packages import UnavailableError
from debian_prometheus import Programs, install


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
    with pytest.raises(UnavailableError, match="there is no apt-get to bring prometheus"):
        install(tmp_path / "cache")
