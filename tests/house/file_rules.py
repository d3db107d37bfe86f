"""What no file of the project holds: a machine's paths, a registry's address; versions agree."""

from __future__ import annotations

import ast
import configparser
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from source_tree import ROOT, project_files

MACHINE_FOLDERS = ("work", "farm", "tmp", "root", "home")
_MACHINE_PATH = re.compile(rf"(?<![A-Za-z0-9_.])/(?:{'|'.join(MACHINE_FOLDERS)})/[a-z]")

# Each host in pieces, so that this file does not name what it refuses.
REGISTRY_HOSTS = tuple(
    ".".join(labels)
    for labels in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("yarnpkg", "com"),
        ("maven", "apache", "org"),
        ("repo1", "maven", "org"),
        ("crates", "io"),
        ("proxy", "golang", "org"),
        ("deb", "debian", "org"),
    )
)
_REGISTRY = re.compile(
    "|".join(re.escape(host) for host in REGISTRY_HOSTS)
    + r'|index-url *=? *https?:|registry\+https?:|registry *= *https?:|"resolved": *"'
)

_HEADING = re.compile(r"^#{1,3} +\[?v?(\d+\.\d+\.\d+[a-z0-9.]*)\]?", re.MULTILINE)


def texts(paths: Iterable[Path], root: Path = ROOT) -> dict[str, str]:
    """The project's text files by their relative path."""
    found = {}
    for path in paths:
        data = path.read_bytes()
        if b"\0" not in data:
            found[path.relative_to(root).as_posix()] = data.decode("utf-8", errors="replace")
    return found


def project_texts() -> dict[str, str]:
    return texts(project_files())


def machine_paths(files: Mapping[str, str]) -> list[str]:
    """Absolute paths of somebody's machine. Tests and CI may name scratch folders."""
    shipped = {
        name: text for name, text in files.items() if not name.startswith(("tests/", ".ci/"))
    }
    return _found(shipped, _MACHINE_PATH)


def registry_addresses(files: Mapping[str, str]) -> list[str]:
    """Addresses of package registries."""
    return _found(files, _REGISTRY)


def _found(files: Mapping[str, str], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match.group()}"
        for name, text in files.items()
        for match in pattern.finditer(text)
    ]


def addresses_in_lock(lock: Mapping[str, Any]) -> list[str]:
    """Everything in a package lock that says where a package came from."""
    breaches: list[str] = []
    for name, entry in lock["packages"].items():
        if "resolved" in entry:
            breaches.append(f"{name or '(root)'} has `resolved`")
        if "://" in json.dumps(entry):
            breaches.append(f"{name or '(root)'} holds an address")
    return breaches


def loose_pins(manifest: Mapping[str, Any], lock: Mapping[str, Any]) -> list[str]:
    """Dependencies of a package.json that are no exact version, or not the locked one.

    A second version of a package stands under a name of its own: "npm:package@version".
    """
    breaches = []
    for name, wanted in manifest["dependencies"].items():
        entry = lock["packages"].get(f"node_modules/{name}", {})
        pin = re.fullmatch(r"(?:npm:([a-z][a-z0-9-]*)@)?(\d+\.\d+\.\d+)", wanted)
        if pin is None:
            breaches.append(f"{name}: {wanted!r} is not one version")
        elif pin.groups() != (entry.get("name"), entry.get("version")):
            breaches.append(f"{name}: {wanted} is asked for, {entry.get('version')} is locked")
    return breaches


def version_differences(setup_cfg: str, init: str, changelog: str) -> list[str]:
    """Where setup.cfg, `__version__` and the change log do not tell the same version."""
    parser = configparser.ConfigParser()
    parser.read_string(setup_cfg)
    version = parser["metadata"]["version"]
    own = [
        node.value.value
        for node in ast.parse(init).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and any(isinstance(name, ast.Name) and name.id == "__version__" for name in node.targets)
    ]
    breaches = []
    if own != [version]:
        breaches.append(f"setup.cfg says {version}, __init__.py says {own}")
    if version not in _HEADING.findall(changelog):
        breaches.append(f"CHANGELOG.md has no heading for {version}")
    return breaches
