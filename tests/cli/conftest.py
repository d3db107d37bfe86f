from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

sys.path.insert(0, str(Path(__file__).parent.parent / "api"))

from serving import ReactorThread, Served

from hyperbloom.cli.root import hyperbloom
from hyperbloom.keys import create_key_file


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path):
    """No configuration of the machine's, and a folder of our own for what goes wrong."""
    monkeypatch.delenv("HYPERBLOOM_CONFIG", raising=False)
    monkeypatch.setattr("hyperbloom.cli.app.SYSTEM_CONFIG", tmp_path / "system" / "hyperbloom.toml")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def reactor_thread():
    thread = ReactorThread()
    yield thread
    thread.stop()


class Hyperbloom:
    """Runs the command in this process; `config` is given unless it is None."""

    def __init__(self, config=None):
        self.config = config

    def __call__(self, *arguments, stdin=None):
        position = ["-c", str(self.config)] if self.config else []
        return CliRunner().invoke(hyperbloom, [*position, *arguments], input=stdin)

    def out(self, *arguments, **more):
        """Standard output of a command that must succeed and say nothing else."""
        result = self(*arguments, **more)
        assert result.exit_code == 0, result.output
        assert result.stderr == ""
        return result.stdout

    def refusal(self, code, *arguments, **more):
        """The one sentence on standard error of a command that must fail."""
        result = self(*arguments, **more)
        assert result.exit_code == code, (result.exit_code, result.output)
        assert result.stdout == ""
        if "--json" in arguments:
            return json.loads(result.stderr)["detail"]
        assert result.stderr.startswith("hyperbloom: ")
        assert result.stderr.count("\n") == 1
        assert "Traceback" not in result.stderr
        return result.stderr.removeprefix("hyperbloom: ").strip()


@pytest.fixture
def offline():
    return Hyperbloom()


@pytest.fixture
def served(reactor_thread):
    """A fake node behind a real control socket, with a configuration beside it."""
    one = Served(reactor_thread)
    create_key_file(one.folder / "identity.key", one.node.identity.seed)
    (one.folder / "hyperbloom.toml").write_text("[node]\n")
    yield one
    one.close()


@pytest.fixture
def node(served):
    """The command, told about the fake node."""
    return Hyperbloom(served.folder / "hyperbloom.toml")


@pytest.fixture
def environment():
    """The environment for real processes."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent.parent)}
