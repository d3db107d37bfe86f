"""A data folder that the node cannot write: one sentence with folder, owner and cure."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nodes import TWISTD, Nodes, real_nodes

from hyperbloom.exit_codes import ExitCode
from hyperbloom.process.data_folder import why_unwritable

ME = pwd.getpwuid(os.geteuid()).pw_name
#: Somebody else, who owns nothing here.
OTHER = 65_534
SOURCE = str(Path(__file__).parents[2])


def without_privilege(*command: str, code: int = 0) -> str:
    """Standard error of a command that permissions hold for, though root runs it."""
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv is missing, and nothing is forbidden to root")
        dropped = "-dac_override,-dac_read_search"
        command = ("setpriv", f"--inh-caps={dropped}", f"--bounding-set={dropped}", *command)
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def why(folder: Path) -> str:
    code = (
        "import sys, pathlib; from hyperbloom.process.data_folder import why_unwritable; "
        "print(why_unwritable(pathlib.Path(sys.argv[1])))"
    )
    return without_privilege(sys.executable, "-c", code, str(folder)).strip()


def test_a_folder_that_can_be_written_or_made(tmp_path: Path) -> None:
    assert why_unwritable(tmp_path) is None
    assert why_unwritable(tmp_path / "not" / "yet") is None
    assert why(tmp_path) == "None"


def test_a_file_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert str(why_unwritable(tmp_path / "file")).startswith(f"{tmp_path}/file is in the way")
    assert "is in the way" in str(why_unwritable(tmp_path / "file" / "data"))


def test_its_own_folder_shut(tmp_path: Path) -> None:
    folder = tmp_path / "shut"
    folder.mkdir(mode=0o500)
    assert why(folder) == f"{folder} is {ME}'s, but its mode is 0500: `chmod u+rwx {folder}`"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_the_folder_of_another(tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir(mode=0o755)
    os.chown(folder, OTHER, OTHER)
    owner = pwd.getpwuid(OTHER).pw_name
    assert why(folder) == (
        f"{folder} belongs to {owner}, and this is run by {ME}, who may not write there; run it "
        f"as {owner}, or let {ME} have the folder: `chown -R {ME} {folder}`"
    )
    # Nobody is to give /var/lib away because a folder is missing there.
    assert why(folder / "new").endswith(f"`install -d -m 700 -o {ME} {folder / 'new'}`")


def test_a_node_says_it_in_one_sentence(tmp_path: Path) -> None:
    with real_nodes(tmp_path) as nodes:
        node = Nodes.make(nodes, "node", feed="words")
        command = (TWISTD, "-n", "--pidfile=", "hyperbloom", "-c", str(node.config_path))
        node.folder.chmod(0o500)
        try:
            text = without_privilege(*command, code=ExitCode.STORE)
        finally:
            node.folder.chmod(0o700)
        assert f"{node.folder} is {ME}'s, but its mode is 0500" in text
        assert "Traceback" not in text
        file = node.folder / "store" / "node.lock"
        file.parent.mkdir(mode=0o700)
        file.touch(mode=0o000)
        text = without_privilege(*command, code=ExitCode.STORE)
        assert f"hyperbloom: {file} cannot be used (Permission denied); everything in" in text
        assert "Traceback" not in text
