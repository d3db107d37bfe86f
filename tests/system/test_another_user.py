"""What another user of the machine comes to: neither to the socket nor to what the node keeps.

A child process gives up root for a user and a group that own nothing here, and tries. The folders
above the node's are open to everybody; what the node made itself must be enough.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import Nodes, RealNode, free_port

NOBODY = 65_534
SECRETS = ("identity.key", "api.token", "store/data.mdb")
#: Tries the paths given, as another user, and prints what it came to with each.
STRANGER = """
import os, socket, stat, sys
user = int(sys.argv[1])
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)
for path in sys.argv[2:]:
    try:
        if path.endswith(".sock"):
            socket.socket(socket.AF_UNIX).connect(path)
        else:
            open(path, "rb").read(1)
        print("in")
    except OSError as error:
        print(type(error).__name__)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def attempts(*paths: Path) -> list[str]:
    """What became of each path: `in`, or the name of the error."""
    command = [sys.executable, "-c", STRANGER, str(NOBODY), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    return done.stdout.split()


@pytest.fixture
def node() -> Iterator[RealNode]:
    """A node in folders that everybody may enter, its own among them."""
    # Not pytest's temporary folder, whose parents are closed to others.
    with tempfile.TemporaryDirectory(prefix="hb-") as above:
        Path(above).chmod(0o755)
        nodes = Nodes(Path(above))
        one = nodes.make("node", config=f'[api]\nlisten = "127.0.0.1:{free_port()}"\n')
        one.folder.chmod(0o755)
        before = os.umask(0o022)
        try:
            yield one.start()
        finally:
            os.umask(before)
            nodes.close()


def paths(node: RealNode) -> list[Path]:
    return [node.folder / name for name in ("control.sock", *SECRETS)]


def test_another_user_comes_to_nothing(node: RealNode) -> None:
    node.put(b"a value")
    reached = node.folder / "hyperbloom.toml"
    assert attempts(reached, *paths(node)) == ["in", *["PermissionError"] * (1 + len(SECRETS))]
    assert node.put(b"another") == 1


@pytest.mark.parametrize("name", ["control.sock", *SECRETS])
def test_another_user_would_come_to_what_is_less_closed(node: RealNode, name: str) -> None:
    path = node.folder / name
    path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o066)
    path.parent.chmod(0o755)
    expected = ["in" if one == path else "PermissionError" for one in paths(node)]
    assert attempts(*paths(node)) == expected
