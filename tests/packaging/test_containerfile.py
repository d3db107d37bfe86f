"""The container: what its file says, and, when asked for, an image built by buildah and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import ROOT, UnavailableError, base_system
from nodes import wait_until
from test_wheel import SOURCES

from hyperbloom.config import DEFAULT_PORT

FILE = ROOT / "tap" / "Containerfile"
STEP_SECONDS = 280
CERTIFICATES = "/etc/ssl/certs"


def last_stage() -> str:
    return FILE.read_text().rpartition("\nFROM ")[2]


def test_a_container_is_built_from_what_a_wheel_is_made_of() -> None:
    ignore = FILE.with_name("Containerfile.dockerignore").read_text().splitlines()
    assert ignore[1] == "*"
    assert {line.removeprefix("!") for line in ignore[2:]} == set(SOURCES)


def test_its_node_is_no_root_and_its_folder_is_a_volume() -> None:
    told = dict(re.findall(r"^([A-Z]+) (.+)$", last_stage(), re.MULTILINE))
    assert told["USER"] == "hyperbloom"
    assert told["VOLUME"] == told["ENV"].removeprefix("HYPERBLOOM_CONFIG=") == "/var/lib/hyperbloom"
    assert told["EXPOSE"] == f"{DEFAULT_PORT}/tcp {DEFAULT_PORT}/udp"
    assert json.loads(told["ENTRYPOINT"] + "\n") + json.loads(told["CMD"]) == ["hyperbloom", "run"]


class Buildah:
    """buildah with images of its own, in a folder; it asks no engine and no registry."""

    def __init__(self, folder: Path) -> None:
        self._words = ["buildah", "--root", str(folder / "root"), "--runroot", str(folder / "run")]
        self._environment = os.environ | {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}

    def __call__(self, *words: str | Path) -> str:
        done = subprocess.run(
            [*self._words, *words],
            capture_output=True,
            text=True,
            timeout=STEP_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
            env=self._environment,
        )
        assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
        return done.stdout.strip()

    def start(self, *words: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as file:
            return subprocess.Popen(
                [*self._words, *words],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env=self._environment,
                start_new_session=True,
            )


@pytest.fixture
def buildah(tmp_path: Path) -> Iterator[Buildah]:
    if shutil.which("buildah") is None:
        pytest.skip("buildah is missing")
    made = Buildah(tmp_path)
    yield made
    made("rm", "--all")
    made("rmi", "--all", "--force")


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_an_image_is_built_and_runs_a_node(buildah: Buildah, tmp_path: Path) -> None:
    try:
        base = base_system()
    except UnavailableError as error:
        pytest.skip(str(error))
    empty = buildah("from", "scratch")
    buildah("add", "--quiet", empty, base, "/")
    buildah("commit", "--quiet", empty, "localhost/base")
    build = ["--pull-never", "--format=docker", "--build-arg=BASE=localhost/base"]
    if Path(CERTIFICATES).is_dir():
        build.append(f"--volume={CERTIFICATES}:{CERTIFICATES}:ro")
    buildah("bud", *build, f"--file={FILE}", "--tag=localhost/hyperbloom", ROOT)

    made = buildah("from", "--pull-never", "localhost/hyperbloom")
    inside = ("run", made, "--", "hyperbloom")
    # The network is this machine's: a port that is surely free, on loopback.
    listen = ("--listen", "tcp:0:interface=127.0.0.1")
    init = buildah(*inside, "init", "/var/lib/hyperbloom", "--no-feed", "--json", *listen)
    public = json.loads(init)["public"]
    log = tmp_path / "log"
    node = buildah.start(*inside, "run", log=log)
    try:

        def serves() -> bool:
            assert node.poll() is None, log.read_text(errors="replace")
            return "The node serves its feeds" in log.read_text(errors="replace")

        wait_until(serves, STEP_SECONDS, "the node in the container serves")
        image = json.loads(buildah("inspect", "--type=image", "localhost/hyperbloom"))
        (kind, *check) = image["Docker"]["config"]["Healthcheck"]["Test"]
        assert kind == "CMD"
        told = json.loads(buildah("run", made, "--", *check, "--json"))
        assert told["public_key"] == public
        socket = "/var/lib/hyperbloom/control.sock"
        assert buildah("run", made, "--", "stat", "--format=%u", socket) == str(DEFAULT_PORT)
    finally:
        os.killpg(node.pid, 15)
        node.wait(STEP_SECONDS)
