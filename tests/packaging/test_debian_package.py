"""The Debian package: built, looked at by lintian, and lived with on a machine of its own."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import ROOT, Machine, UnavailableError, base_system, running
from nodes import wait_until

BUILD_SECONDS = 290
CONFIG = "/etc/hyperbloom/hyperbloom.toml"
STATE = "/var/lib/hyperbloom"
MOST_EXPOSED = 1.3
DROP_IN = """\
[Service]
LoadCredential=node.key:/root/node.key
LoadCredential=api.token:/root/api.token
"""
API = '[api]\nlisten = "127.0.0.1:4366"\ntoken = "credential:api.token"\n'
LOADER = '#!/bin/sh\ncp "$1" /run/loaded.new && mv /run/loaded.new /run/loaded\n'
TOOLS = f"""
[[outputs]]
name = "lists"
format = "lines"
path = "{STATE}/lists/test"
command = ["/bin/sh", "-c", "cp \\"$HYPERBLOOM_PATH\\" {STATE}/copied"]

[[inputs]]
name = "list"
path = "/etc/hyperbloom/list.txt"

[[hooks]]
name = "tell"
since = "start"
command = ["/bin/sh", "-c", "cat >>{STATE}/told"]
"""
VALUES = "one\nthree\ntwo\n"
ASK = (
    "import urllib.request as r; q = r.Request('http://127.0.0.1:4366/v1/feeds'); "
    "q.add_header('Authorization', 'Bearer opensesame'); print(r.urlopen(q).status)"
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1200)]


def build(out: Path, revision: int) -> Path:
    done = subprocess.run(
        [ROOT / "scripts" / "debian-package", "--revision", str(revision), out],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two versions, of which the first is built twice."""
    if shutil.which("dh") is None:
        pytest.skip("debhelper is missing")
    folder = tmp_path_factory.mktemp("packages")
    first, second = build(folder, 1), build(folder, 2)
    bytes_of_first = first.read_bytes()
    assert build(folder, 1).read_bytes() == bytes_of_first, "the build is not reproducible"
    return [first, second]


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is missing")
def test_lintian_finds_nothing(packages: list[Path]) -> None:
    found = subprocess.run(
        ["lintian", "--allow-root", "--fail-on=error,warning", packages[0]],
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert (found.returncode, found.stdout) == (0, ""), found.stdout + found.stderr


def test_nothing_in_it_is_of_the_machine_that_built_it(
    packages: list[Path], tmp_path: Path
) -> None:
    subprocess.run(["dpkg-deb", "-x", packages[0], tmp_path], check=True)
    found = subprocess.run(
        ["grep", "-rlF", "-e", str(ROOT), tmp_path], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


@pytest.fixture(scope="module")
def machine(packages: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    try:
        base = base_system()
    except UnavailableError as error:
        pytest.skip(str(error))
    with running(base, tmp_path_factory.mktemp("machine")) as made:
        for package in packages:
            shutil.copy(package, made.folder / "root")
        yield made


def ask_node(machine: Machine, *words: str) -> str:
    return machine.out("hyperbloom", *words, user="hyperbloom")


def install(machine: Machine, package: Path) -> str:
    return machine.out("dpkg", "--install", f"/root/{package.name}")


def public_key(machine: Machine) -> str:
    return json.loads(ask_node(machine, "status", "--json"))["public_key"]


def modes(machine: Machine, *paths: str) -> str:
    return machine.out("stat", "--format=%a %U:%G", *paths)


def test_a_package_lives(machine: Machine, packages: list[Path]) -> None:
    """Installed, used, given credentials, upgraded, removed, installed again, purged."""
    before = listed(machine)
    install(machine, packages[0])
    assert machine.out("systemctl", "is-active", "hyperbloom") == "active\n"
    assert machine.out("systemctl", "is-enabled", "hyperbloom") == "enabled\n"
    key = public_key(machine)
    assert modes(machine, CONFIG, "/etc/hyperbloom") == "640 root:hyperbloom\n750 root:hyperbloom\n"
    whose = "hyperbloom:hyperbloom\n"
    assert modes(machine, STATE, f"{STATE}/identity.key") == f"700 {whose}600 {whose}"
    ask_node(machine, "feed", "create", "list")
    assert ask_node(machine, "put", "one", "two") == "2 new, 0 known in list\n"
    assert "0 errors, 0 warnings" in ask_node(machine, "config", "check")
    security = machine.out("systemd-analyze", "security", "--no-pager", "hyperbloom")
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", security)
    assert found is not None
    assert float(found[1]) <= MOST_EXPOSED

    use_tools(machine)
    take_credentials(machine, key)

    note = machine.folder / "etc/hyperbloom/hyperbloom.toml"
    install(machine, packages[1])
    assert machine.out("systemctl", "is-active", "hyperbloom") == "active\n"
    assert "credential:node.key" in note.read_text(), "a changed configuration is kept"
    assert public_key(machine) == key
    assert ask_node(machine, "get") == VALUES

    machine.out("dpkg", "--remove", "hyperbloom")
    assert machine.run("systemctl", "is-active", "hyperbloom").returncode != 0
    assert not (machine.folder / "usr/lib/hyperbloom").exists()
    install(machine, packages[1])
    assert ask_node(machine, "get") == VALUES

    machine.out("rm", "-r", "/etc/systemd/system/hyperbloom.service.d")
    machine.out("dpkg", "--purge", "hyperbloom")
    assert listed(machine) == before


def use_tools(machine: Machine) -> None:
    """An output, an input and a hook in the unit's sandbox, and the units that load a file."""
    machine.out("install", "-d", "-o", "hyperbloom", "-g", "hyperbloom", f"{STATE}/lists")
    etc = machine.folder / "etc/hyperbloom"
    (etc / "list.txt").write_text("# of others\nthree\n")
    (etc / "load-test").write_text(LOADER)
    examples = "/usr/share/doc/hyperbloom/examples"
    machine.out("install", "-m", "755", f"{examples}/hyperbloom-load", "/etc/hyperbloom/")
    machine.out("chmod", "755", "/etc/hyperbloom/load-test")
    units = "/etc/systemd/system/"
    machine.out("sh", "-c", f"install -m 644 {examples}/hyperbloom-load@.* {units}")
    machine.out("systemctl", "daemon-reload")
    machine.out("systemctl", "enable", "--now", "hyperbloom-load@test.path")
    config = etc / "hyperbloom.toml"
    config.write_text(config.read_text() + TOOLS)
    machine.out("systemctl", "reload", "hyperbloom")

    def text(name: str) -> str:
        path = machine.folder / name
        return path.read_text() if path.exists() else ""

    state = STATE.lstrip("/")
    for name in (f"{state}/lists/test", f"{state}/copied", "run/loaded"):
        wait_until(lambda name=name: machine.run("cat", f"/{name}").stdout == VALUES, 60, name)
    wait_until(lambda: text(f"{state}/told").count("\n") == 3, 60, "the hook is told of three")
    assert modes(machine, f"{STATE}/lists/test") == "644 hyperbloom:hyperbloom\n"
    told = json.loads(ask_node(machine, "status", "--json"))["integrations"]
    assert [(one["kind"], one["problem"]) for one in told] == [
        ("output", None), ("input", None), ("hook", None)
    ]  # fmt: skip
    machine.out("systemctl", "disable", "--now", "hyperbloom-load@test.path")
    machine.out("sh", "-c", f"rm {units}hyperbloom-load@.* /etc/hyperbloom/*load*")
    machine.out("systemctl", "daemon-reload")


def take_credentials(machine: Machine, key: str) -> None:
    """Have the node take its key and a token from systemd."""
    root = machine.folder / "root"
    machine.out("mv", f"{STATE}/identity.key", "/root/node.key")
    (root / "api.token").write_text("opensesame")
    (root / "api.token").chmod(0o600)
    path = machine.folder / "etc/hyperbloom/hyperbloom.toml"
    text = path.read_text().replace(f'"{STATE}/identity.key"', '"credential:node.key"')
    path.write_text(text + API)
    drop_in = machine.folder / "etc/systemd/system/hyperbloom.service.d"
    drop_in.mkdir()
    (drop_in / "credentials.conf").write_text(DROP_IN)
    machine.out("systemctl", "daemon-reload")
    machine.out("systemctl", "restart", "hyperbloom")
    assert public_key(machine) == key
    assert machine.out("python3", "-c", ASK) == "200\n"
    # The unit's credentials are there for its user, too.
    assert ask_node(machine, "key") == f"{key}\n"


def listed(machine: Machine) -> set[str]:
    """Every file of the package's, or by its name, that is there."""
    found = machine.out("find", "/", "-xdev", "-name", "*hyperbloom*", "-not", "-path", "/root/*")
    return set(found.splitlines())
