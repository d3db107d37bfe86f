"""A plain wheel in a clean environment: what a user who installs hyperbloom gets."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("hyperbloom", "twisted_plugins", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
INSTALL_SECONDS = 240

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, **more: object) -> str:
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
        **more,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that the build leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("source")
    listed = run("git", "-C", ROOT, "ls-files", "-z", "--", *SOURCES).split("\0")
    for name in filter(None, listed):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, copy)
    (made,) = out.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel and what it says it needs, nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    run(sys.executable, "-m", "venv", folder)
    run(
        folder / "bin" / "pip",
        "install",
        "--no-compile",
        "--disable-pip-version-check",
        "--quiet",
        wheel,
    )
    return folder


def test_the_status_page_is_in_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    page = {path.name for path in (ROOT / "hyperbloom/api/static").iterdir()}
    assert {"status.html", "status.css", "status.js"} < page
    assert {f"hyperbloom/api/static/{name}" for name in page} <= names


def clean_environ() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "HYPERBLOOM"))}


def test_the_wheel_holds_the_package_the_plugin_and_nothing_of_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "hyperbloom/py.typed" in names
    assert "twisted/plugins/hyperbloom_plugin.py" in names
    assert "hyperbloom/wire/_pb2/hyperbloom_pb2.py" in names
    assert "twisted/plugins/__init__.py" not in names, "it would hide Twisted's own"
    roots = {name.split("/")[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"hyperbloom", "twisted"}


def test_every_module_of_the_package_is_in_the_wheel(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = run("git", "-C", ROOT, "ls-files", "--", "hyperbloom/*.py").split()
    assert modules
    assert set(modules) <= names


def test_twistd_knows_the_plugin(environment: Path, tmp_path: Path) -> None:
    told = run(
        environment / "bin" / "twistd", "hyperbloom", "--help", cwd=tmp_path, env=clean_environ()
    )
    assert "--config" in told
    listed = run(environment / "bin" / "twistd", "--help", cwd=tmp_path, env=clean_environ())
    assert "hyperbloom" in listed


def test_the_command_runs(environment: Path, tmp_path: Path) -> None:
    command = environment / "bin" / "hyperbloom"
    assert "init" in run(command, "--help", cwd=tmp_path, env=clean_environ())
    run(command, "init", tmp_path / "node", cwd=tmp_path, env=clean_environ())
    key = run(command, "-c", tmp_path / "node" / "hyperbloom.toml", "key", env=clean_environ())
    assert re.fullmatch(r"[0-9a-f]{64}\n", key)


IMPORT_ALL = """
import importlib, pkgutil, hyperbloom
for module in pkgutil.walk_packages(hyperbloom.__path__, "hyperbloom."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        # The packages of the extras `export` and `spark` are nobody's but that room's.
        if not module.name.startswith("hyperbloom.export."):
            raise
        print(error.name.partition(".")[0])
"""


def test_every_module_can_be_imported(environment: Path, tmp_path: Path) -> None:
    told = run(environment / "bin" / "python", "-c", IMPORT_ALL, cwd=tmp_path, env=clean_environ())
    assert set(told.split()) <= {"deltalake", "pyarrow", "pyspark"}


def test_an_export_without_the_extra_says_what_to_install(
    environment: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [environment / "bin" / "hyperbloom", "export", "snapshot", "--to", "tables"],
        cwd=tmp_path,
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode != 0
    assert "pip install 'hyperbloom[export]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_machine_with_the_extra_export_alone_exports(wheel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    run(sys.executable, "-m", "venv", folder)
    # The words of docs/analytics.md; the project is this one.
    environ = clean_environ() | {"PIP_FIND_LINKS": str(wheel.parent), "PIP_QUIET": "1"}
    run(folder / "bin" / "pip", "install", "hyperbloom[export]", env=environ)
    command = folder / "bin" / "hyperbloom"
    run(folder / "bin" / "python", "-c", "import hyperbloom.export", env=clean_environ())
    assert not list(folder.glob("lib/python*/site-packages/pyspark"))

    run(command, "init", tmp_path / "node", "--feed", "list", env=clean_environ())
    config = tmp_path / "node" / "hyperbloom.toml"
    node = subprocess.Popen([str(command), "-c", str(config), "run"], env=clean_environ())
    try:
        put = [str(command), "-c", str(config), "put", "one", "two"]
        for _ in range(100):
            done = subprocess.run(put, env=clean_environ(), capture_output=True, check=False)
            if done.returncode == 0:
                break
            time.sleep(0.2)
        assert done.returncode == 0, done.stderr
    finally:
        node.terminate()
        node.wait(60)
    snapshot, tables = tmp_path / "snapshot", tmp_path / "tables"
    run(command, "-c", config, "snapshot", snapshot, env=clean_environ())
    told = run(command, "export", snapshot, "--to", tables, "--json", env=clean_environ())
    assert [table["rows"] for table in json.loads(told)["tables"]] == [2, 0, 1]
    refused = subprocess.run(
        [command, "export", snapshot, "--to", tables, "--mode", "full", "--engine", "spark"],
        env=clean_environ(),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert refused.returncode == 1
    assert refused.stderr == (
        "hyperbloom: pyspark is not installed; install it with: pip install 'hyperbloom[spark]', "
        "or export with --engine local\n"
    )
