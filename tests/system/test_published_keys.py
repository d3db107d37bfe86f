"""Somebody who may write where a node's input lies makes its file a link to the node's key."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from nodes import real_nodes, wait_until

STRANGER = 54_321
LINK = """
import os, sys
user = int(sys.argv[1])
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
os.symlink(sys.argv[2], sys.argv[3] + ".new")
os.rename(sys.argv[3] + ".new", sys.argv[3])
"""


@pytest.fixture
def above():
    """Not pytest's temporary folder, whose parents are closed to others."""
    with tempfile.TemporaryDirectory(prefix="hb-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("name", ["identity.key", "hyperbloom.toml", "../theirs"])
def test_nothing_of_it_is_published(above: Path, name: str) -> None:
    if name == "../theirs" and os.geteuid() != 0:
        pytest.skip("only root can have files that the stranger has not")
    source = above / "lists" / "list.txt"
    source.parent.mkdir()
    source.write_text("one.example\n")
    (above / "theirs").write_text("a password\n")
    (above / "theirs").chmod(0o600)
    if os.geteuid() == 0:
        os.chown(source.parent, STRANGER, STRANGER)
    with real_nodes(above) as nodes:
        config = f'[[inputs]]\nname = "list"\npath = "{source}"\nmax_shrink = 1\n'
        owner = nodes.make("owner", config=config).start()
        wait_until(lambda: owner.values() == [b"one.example"], 30, "the list is read")
        target = (owner.folder / name).resolve()
        subprocess.run(
            [sys.executable, "-c", LINK, str(STRANGER), str(target), str(source)], check=True
        )
        assert owner.command("input", "run", "list").returncode != 0
        assert owner.values() == [b"one.example"]
        shown = owner.command("input", "show", "list").stdout
        assert b"the node's own" in shown or b"symbolic link of somebody" in shown
        # The list comes back.
        source.unlink()
        source.write_text("two.example\n")
        assert owner.command("input", "run", "list").returncode == 0
        assert b"two.example" in owner.values()
