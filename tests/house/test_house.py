"""The house's rules, held against the house itself.

Each rule is a function that lists its breaches; test_rules_bite.py shows that each one finds one.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable

import file_rules
import import_rules
import pytest
import shape_rules
from source_tree import ROOT, Module, package_modules, project_modules

PACKAGE_RULES = [
    import_rules.unplanned_rooms,
    import_rules.upward_imports,
    import_rules.import_circles,
    import_rules.foreign_imports,
    import_rules.private_imports,
    import_rules.impure_core,
    import_rules.network_in,
    shape_rules.unlisted_names,
    shape_rules.left_open,
    shape_rules.native_structs,
    shape_rules.loose_errors,
    shape_rules.loose_messages,
]
PROJECT_RULES = [
    shape_rules.long_modules,
    shape_rules.long_functions,
    shape_rules.empty_names,
]
FILE_RULES = [file_rules.machine_paths, file_rules.registry_addresses]


def name_of(rule: Callable[..., object]) -> str:
    return rule.__name__


def fail_on(breaches: list[str]) -> None:
    if breaches:
        pytest.fail("\n".join(breaches), pytrace=False)


@pytest.fixture(scope="module")
def package() -> list[Module]:
    return package_modules()


@pytest.fixture(scope="module")
def project() -> list[Module]:
    return project_modules()


@pytest.fixture(scope="module")
def files() -> dict[str, str]:
    return file_rules.project_texts()


@pytest.mark.parametrize("rule", PACKAGE_RULES, ids=name_of)
def test_the_package(rule: Callable[[list[Module]], list[str]], package: list[Module]) -> None:
    fail_on(rule(package))


@pytest.mark.parametrize("rule", PROJECT_RULES, ids=name_of)
def test_the_project(rule: Callable[[list[Module]], list[str]], project: list[Module]) -> None:
    fail_on(rule(project))


@pytest.mark.parametrize("rule", FILE_RULES, ids=name_of)
def test_the_files(rule: Callable[[dict[str, str]], list[str]], files: dict[str, str]) -> None:
    fail_on(rule(files))


def test_the_plan_of_the_house_has_no_circle() -> None:
    fail_on(import_rules.circles())


def test_the_three_network_parts_do_not_know_each_other() -> None:
    parts = {"replication", "discovery", "objects"}
    for part in parts:
        assert not (parts - {part} | {"service"}) & set(import_rules.ROOMS[part].knows)


def test_only_the_store_is_given_lmdb() -> None:
    given = [name for name, room in import_rules.ROOMS.items() if "lmdb" in room.packages]
    assert given == ["store"]


@pytest.mark.parametrize("name", ["tests/interop", "tests/interop/dht"])
def test_the_package_locks(name: str) -> None:
    folder = ROOT / name
    manifest = json.loads((folder / "package.json").read_text(encoding="utf-8"))
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    fail_on(file_rules.addresses_in_lock(lock) + file_rules.loose_pins(manifest, lock))


def test_the_versions_agree() -> None:
    paths = ("setup.cfg", "hyperbloom/__init__.py", "CHANGELOG.md")
    fail_on(file_rules.version_differences(*((ROOT / path).read_text() for path in paths)))


def test_the_generated_protobuf_is_fresh() -> None:
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip("grpcio-tools is not installed (extra `dev`)")
    script = ROOT / "scripts" / "proto"
    run = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
