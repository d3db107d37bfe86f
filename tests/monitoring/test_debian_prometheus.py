"""How Prometheus is brought: from the PATH, else as a Debian package."""

from __future__ import annotations

from pathlib import Path

import pytest
from debian_packages import UnavailableError, program
from debian_prometheus import Programs, install


def test_what_the_machine_has_is_taken(empty_path: Path, tmp_path: Path) -> None:
    made = Programs(
        program(empty_path, "prometheus", ""), program(empty_path, "promtool", "echo $1")
    )
    assert install(tmp_path / "cache") == made
    assert made.tool("check").stdout == "check\n"
    assert not (tmp_path / "cache").exists()


def test_without_apt_the_reason_is_told(empty_path: Path, tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="there is no apt-get to bring prometheus"):
        install(tmp_path / "cache")
