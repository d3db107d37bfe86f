"""What deploys a node: the example configuration, the .tac file and the systemd unit."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import subprocess
import urllib.request
from http import HTTPStatus
from pathlib import Path

import pytest
from nodes import TWISTD, Nodes, RealNode, free_port, real_nodes, wait_until

from hyperbloom.client.client import NodeUnreachable
from hyperbloom.config import Config, ConfigError, load_config, parse_config
from hyperbloom.exit_codes import ExitCode

TAP = Path(__file__).parents[2] / "tap"
CONFIG = TAP / "hyperbloom.toml"
UNIT = TAP / "hyperbloom.service"
INSTALLED_CONFIG = "/etc/hyperbloom/hyperbloom.toml"
READY_SECONDS = 240.0
SETTING = re.compile(r"^# (?=\w+ = |\[\[)", re.MULTILINE)


@pytest.fixture
def nodes(tmp_path: Path):
    with real_nodes(tmp_path) as made:
        yield made


def parsed(text: str) -> Config:
    return parse_config(text, path=Path(INSTALLED_CONFIG))


def unit_setting(name: str) -> str:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read_string(UNIT.read_text())
    return unit["Service"][name]


def test_the_example_configuration_loads() -> None:
    config = load_config(CONFIG)
    assert config.listen == ("tcp:4365",)
    assert str(config.data) == "/var/lib/hyperbloom"
    assert config.identity.parent == config.data


def test_what_the_example_comments_out_loads_too() -> None:
    text, uncommented = SETTING.subn("", CONFIG.read_text())
    assert uncommented >= 5
    config = parsed(text)
    assert config.advertise
    assert config.feeds[0].peers


def test_a_slip_in_the_example_would_be_found() -> None:
    with pytest.raises(ConfigError, match="did you mean listen"):
        parsed(CONFIG.read_text().replace("listen =", "listne ="))


def test_the_unit_and_the_example_agree() -> None:
    config = load_config(CONFIG)
    assert config.data == Path("/var/lib") / unit_setting("StateDirectory")
    assert shlex.split(unit_setting("ExecStart"))[-1] == INSTALLED_CONFIG
    assert int(unit_setting("LimitNOFILE")) > config.limits.connections


def test_the_unit_does_not_restart_what_would_only_fail_again() -> None:
    codes = {int(code) for code in unit_setting("RestartPreventExitStatus").split()}
    assert codes == {ExitCode.USAGE, ExitCode.CONFIG}


def test_a_process_that_the_kernel_ends_for_memory_does_not_end_the_unit() -> None:
    """By default (`stop`) somebody's list would stop the node, and `on-failure` start it again."""
    assert unit_setting("OOMPolicy") == "continue"


def started(node: RealNode, command: list[str], **environment: str) -> RealNode:
    """The node, started by a command of its own and ready."""
    with node.log_path.open("ab") as log:
        node.process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=node.folder,
            env=os.environ | environment,
        )
    wait_until(lambda: is_ready(node), READY_SECONDS, "the node is ready")
    return node


def is_ready(node: RealNode) -> bool:
    assert node.process.poll() is None, node.log_path.read_text()
    try:
        with node.client() as client:
            return client.ping()["pid"] == node.process.pid
    except NodeUnreachable:
        return False


def test_the_command_of_the_unit_runs_a_node(nodes: Nodes) -> None:
    node = nodes.make("node", feed="words")
    program, *arguments = shlex.split(unit_setting("ExecStart"))
    assert Path(program).name == Path(TWISTD).name
    assert arguments[-1] == INSTALLED_CONFIG
    started(node, [TWISTD, *arguments[:-1], str(node.config_path)])
    assert node.put(b"one", b"two") == 2
    assert not list(node.folder.glob("*.pid"))
    assert node.stop()


def test_the_tac_runs_the_node_that_the_environment_names(nodes: Nodes) -> None:
    node = nodes.make("node", feed="words")
    command = [TWISTD, "-n", "--pidfile=", "-y", str(TAP / "hyperbloom.tac")]
    started(node, command, HYPERBLOOM_CONFIG=str(node.config_path))
    assert node.put(b"one") == 1
    assert node.stop()


def test_the_tac_says_what_is_wrong_with_the_configuration(nodes: Nodes) -> None:
    node = nodes.make("node")
    node.config_path.write_text("[nodes]\n")
    ended = subprocess.run(
        [TWISTD, "-n", "--pidfile=", "-y", str(TAP / "hyperbloom.tac")],
        env=os.environ | {"HYPERBLOOM_CONFIG": str(node.config_path)},
        cwd=node.folder,
        capture_output=True,
        text=True,
        timeout=READY_SECONDS,
        check=False,
    )
    assert ended.returncode == ExitCode.CONFIG != -signal.SIGTERM
    assert "did you mean node?" in ended.stderr


def test_a_node_takes_its_key_and_its_token_from_systemd(nodes: Nodes) -> None:
    node = nodes.make("node", feed="words")
    folder = node.folder / "credentials"
    folder.mkdir(mode=0o700)
    token = "0123456789abcdef"
    (folder / "api.token").write_text(token)
    node.config_path.with_name("identity.key").rename(folder / "node.key")
    for path in folder.iterdir():
        path.chmod(0o400)
    folder.chmod(0o500)
    port = free_port()
    text = node.config_path.read_text().replace(
        "[node]", '[node]\nidentity = "credential:node.key"'
    )
    text += f'\n[api]\nlisten = "127.0.0.1:{port}"\ntoken = "credential:api.token"\n'
    node.config_path.write_text(text)
    command = [TWISTD, "-n", "--pidfile=", "hyperbloom", "-c", str(node.config_path)]
    started(node, command, CREDENTIALS_DIRECTORY=str(folder))
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/v1/feeds")
    asked.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(asked, timeout=READY_SECONDS) as answer:
        assert answer.status == HTTPStatus.OK
    assert node.stop()
