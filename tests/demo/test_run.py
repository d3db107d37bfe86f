"""`scripts/run`, as on a machine where nothing is prepared: in a copy of the project."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from without_java import without_java

ROOT = Path(__file__).parents[2]
SAMPLE = Path("scripts/sample/disposable-email-domains.txt")
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".*cache", ".venv", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist",
    "demo", "node_modules", "tests",
)  # fmt: skip
RUN_SECONDS = 600


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory):
    """A copy of the project; its nodes are stopped whatever happens."""
    copy = tmp_path_factory.mktemp("demo") / "hyperbloom"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    yield copy
    run(copy, "--stop")


def run(
    project: Path, *arguments: str, environment: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(project / "scripts" / "run"), *arguments],
        # From elsewhere, and with what a person may have set in a shell.
        cwd=project.parent,
        env={**environment, "HYPERBLOOM_CONFIG": "elsewhere/hyperbloom.toml"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )


def running(project: Path) -> list[str]:
    """Command lines of processes that run out of the copy."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(project) in command:
            found.append(command)
    return found


@pytest.mark.slow
@pytest.mark.timeout(RUN_SECONDS)
def test_without_java_the_member_prints_the_values_of_the_owner_in_order(
    project: Path, tmp_path: Path
) -> None:
    done = run(project, "--once", environment=without_java(tmp_path / "programs"))
    assert done.returncode == 0, done.stdout + done.stderr
    values = sorted((ROOT / SAMPLE).read_bytes().splitlines())
    assert (project / "demo" / "in-order.txt").read_bytes().splitlines() == values
    assert sorted((project / "demo" / "arrivals.txt").read_bytes().splitlines()) == values

    printed = [line.strip() for line in done.stdout.splitlines()]
    first, last = (value.decode() for value in (values[0], values[-1]))
    assert printed.index(first) < printed.index("…") < printed.index(last)
    counts = [json.loads(line) for line in printed if line.startswith('{"count"')]
    assert [found["count"] for found in counts] == [len(values)] * 2 + [len(values) + 1] * 2
    assert len({found["digest"] for found in counts}) == 2
    assert "the owner's watch prints: live.mail.example" in printed
    count = len(values) + 1
    without_spark = printed.index(f"duckdb reads {count} rows; the node counts {count}")
    assert without_spark < printed.index(f"spark reads {count} rows; the node counts {count}")
    assert "\x1b" not in done.stdout, "colours are for terminals"

    assert done.stdout.count("node has stopped") == 2
    assert running(project) == []


@pytest.mark.slow
@pytest.mark.timeout(RUN_SECONDS)
def test_a_second_run_starts_anew_and_leaves_nodes_that_can_be_stopped(project: Path) -> None:
    done = run(project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(running(project)) == 2
    commands = re.findall(r"^ +(hyperbloom (?:status|peers|trust show))  ", done.stdout, re.M)
    assert len(commands) == 3
    program = str(project / ".cache" / "run" / "bin" / "hyperbloom")
    for command in commands:
        tried = subprocess.run(
            [program, "-c", str(project / "demo/member"), *command.split()[1:], "--json"],
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert tried.returncode == 0, tried.stderr
        json.loads(tried.stdout)

    stopped = run(project, "--stop")
    assert (stopped.returncode, stopped.stdout.count("has stopped")) == (0, 2)
    assert running(project) == []
    again = run(project, "--stop")
    assert (again.returncode, "no node" in again.stdout) == (0, True)


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    for name in ("run", "environment.sh"):
        shutil.copy(ROOT / "scripts" / name, scripts)
    # An environment that is up to date as far as the script can see.
    text = (scripts / "run").read_text()
    (scripts / "run").write_text(text.replace("    prepare_environment\n", ""))
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "precious.txt").write_text("mine")
    done = run(tmp_path)
    assert done.returncode == 1
    assert "demo/ is in the way" in done.stderr
    assert (tmp_path / "demo" / "precious.txt").read_text() == "mine"


def test_an_unknown_option_is_refused() -> None:
    done = run(ROOT, "--forever")
    assert done.returncode == 2
    assert "--once" in done.stderr
