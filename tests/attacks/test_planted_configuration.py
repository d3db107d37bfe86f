"""A local user who plants a configuration where others call the command.

Mallory writes `hyperbloom.toml` and listens on the control socket beside it, as a user of his own;
somebody else stands in that folder and calls the command. He must get no value, no invitation, no
question, and no program of his run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodes import HYPERBLOOM

from hyperbloom.invitation import Invitation, encode_invitation
from hyperbloom.keys import Identity

MALLORY, ALICE = 61_001, 61_002
#: Longer than any command here takes; `run` of before does not end.
SECONDS = 60

#: Becomes the user of the first argument.
DROP = """
import os, sys
def drop(user):
    os.setgroups([]), os.setresgid(user, user, user), os.setresuid(user, user, user)
"""
#: Listens beside the configuration that it writes, and prints each request that comes.
PLANT = (
    DROP
    + """
import socket
drop(int(sys.argv[1]))
os.chdir(sys.argv[2])
open("identity.key", "w").write("07" * 32 + "\\n")
os.chmod("identity.key", 0o600)
open("hyperbloom.toml", "w").write(sys.argv[3])
os.umask(0)
listening = socket.socket(socket.AF_UNIX)
listening.bind("control.sock")
listening.listen()
print("ready", flush=True)
while True:
    caller, _ = listening.accept()
    caller.settimeout(0.5)
    got = b""
    try:
        while more := caller.recv(65_536):
            got += more
    except TimeoutError:
        pass
    print(got.hex(), flush=True)
    caller.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\nContent-Type: application/json"
                   b"\\r\\nConnection: close\\r\\n\\r\\n{}")
    caller.close()
"""
)
#: Calls the command as the user of the first argument, in the folder of the second. What it is made
#: of is imported before: Python itself may lie where that user may not look.
CALL = (
    DROP
    + """
import hyperbloom.cli.root, hyperbloom.client.client, hyperbloom.config, hyperbloom.invitation
import encodings.idna, getpass, grp, http.client, pwd
import hyperbloom.cli.template, hyperbloom.keys
if os.path.exists(os.path.dirname(hyperbloom.cli.__file__) + "/found_config.py"):
    import hyperbloom.cli.found_config
from hyperbloom.cli import main
os.chdir(sys.argv[2])
drop(int(sys.argv[1]))
sys.argv[:] = ["hyperbloom", *sys.argv[3:]]
main()
"""
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class Machine:
    """A folder that everybody may enter, with a home for Mallory and one like /tmp for all."""

    def __init__(self, top: Path) -> None:
        top.chmod(0o755)
        self.top, self.home, self.shared = top, top / "mallory", top / "shared"
        for folder, user, mode in ((self.home, MALLORY, 0o755), (self.shared, 0, 0o1777)):
            folder.mkdir()
            os.chown(folder, user, user)
            folder.chmod(mode)
        self.planted: subprocess.Popen[bytes] | None = None

    def plant(self, folder: Path, text: str = "[node]\n") -> None:
        """Mallory waits in a folder."""
        self.planted = subprocess.Popen(
            [sys.executable, "-c", PLANT, str(MALLORY), str(folder), text], stdout=subprocess.PIPE
        )
        assert self.planted.stdout is not None
        assert self.planted.stdout.readline() == b"ready\n"

    def got(self) -> list[bytes]:
        """All that Mallory was sent; he is gone then."""
        if self.planted is None:
            return []
        self.planted.kill()
        out, _ = self.planted.communicate()
        self.planted = None
        return [bytes.fromhex(line) for line in out.decode().split()]


@pytest.fixture
def machine() -> Iterator[Machine]:
    # Not pytest's temporary folder, whose parents are closed to others.
    with tempfile.TemporaryDirectory(prefix="hb-") as top:
        made = Machine(Path(top))
        try:
            yield made
        finally:
            made.got()


def call(
    user: int, folder: Path, *words: str, stdin: bytes = b"", **variables: str
) -> subprocess.CompletedProcess[bytes]:
    """The command as a user in a folder."""
    environment = {name: text for name, text in os.environ.items() if "HYPERBLOOM" not in name}
    environment |= {"HOME": "/nonexistent", "XDG_STATE_HOME": "/nonexistent", **variables}
    command = [HYPERBLOOM, *words]
    if user != 0:
        command = [sys.executable, "-c", CALL, str(user), str(folder), *words]
    return subprocess.run(
        command, input=stdin, capture_output=True, timeout=SECONDS, cwd=folder, env=environment
    )


def refusal(done: subprocess.CompletedProcess[bytes], code: int) -> str:
    told = done.stderr.decode()
    assert (done.returncode, done.stdout) == (code, b""), (done.returncode, done.stdout, told)
    assert told.count("\n") == 1, told
    assert "Traceback" not in told
    return told


def an_invitation() -> str:
    owner = Identity(os.urandom(32))
    return encode_invitation(Invitation(feed_key=owner.public_key, links=(), addresses=()))


COMMANDS = {
    "put": ("put", "what nobody else is to read"),
    "join": ("join", "-"),
    "status": ("status",),
    "deny": ("trust", "deny", "ab" * 32),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("place", ["home", "shared"])
@pytest.mark.parametrize("user", [0, ALICE], ids=["root", "alice"])
def test_who_stands_in_the_folder_says_nothing_to_him(machine, user, place, name):
    folder = getattr(machine, place)
    machine.plant(folder)
    line = an_invitation().encode() + b"\n"
    done = call(user, folder, *COMMANDS[name], stdin=line)
    assert machine.got() == [], "he was sent what was meant for another node"
    told = refusal(done, 2)
    assert "hyperbloom.toml in this folder is not taken by itself" in told
    assert "name it: `-c hyperbloom.toml`" in told
    assert (f"{folder} belongs to #{MALLORY}" in told) == (place == "home")


def test_a_tab_asks_him_nothing(machine):
    machine.plant(machine.shared)
    done = call(
        0, machine.shared, _HYPERBLOOM_COMPLETE="bash_complete",
        COMP_WORDS="hyperbloom trust deny ", COMP_CWORD="3",
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, b"")
    assert machine.got() == []


@pytest.mark.parametrize("target", ["hyperbloom.toml", "/mine/hyperbloom.toml"])
def test_a_link_to_a_file_of_the_callers_own_leads_to_no_socket_of_his(machine, target):
    """Beside a link to a file lies the link's folder: so does the socket."""
    own = machine.top / "mine"
    own.mkdir(mode=0o700)
    (own / "hyperbloom.toml").write_text("[node]\n")
    machine.plant(machine.shared)
    planted = machine.shared / "hyperbloom.toml"
    planted.unlink()
    planted.symlink_to(own / "hyperbloom.toml")
    os.chown(planted, 0 if target.startswith("/") else MALLORY, MALLORY, follow_symlinks=False)
    done = call(0, machine.shared, "put", "a value")
    assert machine.got() == []
    assert "is not taken by itself" in refusal(done, 2)


def test_a_link_of_ones_own_through_a_folder_of_his_is_his_to_turn(machine):
    own = machine.top / "mine"
    own.mkdir(mode=0o700)
    (machine.home / "node.toml").write_text("[node]\n")
    (own / "hyperbloom.toml").symlink_to(machine.home / "node.toml")
    assert f"{machine.home} belongs to" in refusal(call(0, own, "key"), 2)


def test_a_folder_that_he_can_put_another_in_the_place_of(machine):
    """Below a folder of his even one's own is found by a path that he can turn."""
    own = machine.home / "node"
    assert call(0, machine.top, "init", str(own), "--no-feed").returncode == 0
    assert f"{machine.home} belongs to" in refusal(call(0, own, "key"), 2)
    assert call(0, own, "key", "-c", "hyperbloom.toml").returncode == 0


def test_a_variable_that_means_another_file_in_each_folder_is_as_good_as_none(machine):
    machine.plant(machine.shared)
    for named in ("hyperbloom.toml", "."):
        done = call(0, machine.shared, "put", "a value", HYPERBLOOM_CONFIG=named)
        assert f"name it: `-c {named}`" in refusal(done, 2)
    assert machine.got() == []


def test_none_of_his_programs_is_run_by_root(machine):
    """Neither where his configuration is found, nor where root names it by mistake."""
    marker = machine.shared / "marker"
    hook = (
        f'[[hooks]]\nname = "his"\nfeed = "own"\ncommand = ["/bin/sh", "-c", "id -u >{marker}"]\n'
    )
    machine.plant(machine.home, f"[node]\nlisten = []\n{hook}")
    assert "is not taken by itself" in refusal(call(0, machine.home, "run"), 2)
    named = str(machine.home / "hyperbloom.toml")
    told = refusal(call(0, machine.top, "run", "-c", named), 3)
    assert f"{named} belongs to #{MALLORY}, and root would run what it says" in told
    assert f"`sudo -u '#{MALLORY}' hyperbloom run -c {named}`" in told
    os.chown(named, 0, 0)
    told = refusal(call(0, machine.top, "run", "-c", named), 3)
    assert f"{machine.home} belongs to #{MALLORY}" in told
    os.chown(machine.home, 0, 0)
    machine.home.chmod(0o777)
    told = refusal(call(0, machine.top, "run", "-c", named), 3)
    assert f"others may write to {machine.home} (mode 0777), and root would run" in told
    assert "sudo" not in told
    assert not marker.exists()
    assert machine.got() == []


def test_root_names_the_node_of_a_service_user_and_comes_to_it(machine):
    """What honest operators do: the node of another user is told by name which it is."""
    machine.plant(machine.home)
    done = call(0, machine.top, "put", "a value", "-c", str(machine.home))
    assert done.returncode != 2, done.stderr
    assert any(b"a value".hex().encode() in request for request in machine.got())
    for where in ({"HYPERBLOOM_CONFIG": str(machine.home)}, {}):
        words = ("key",) if where else ("key", "-c", str(machine.home))
        assert call(0, machine.top, *words, **where).returncode == 0


@pytest.mark.parametrize("user", [0, ALICE], ids=["root", "alice"])
def test_ones_own_node_below_tmp_is_found(machine, user):
    own = machine.shared / "node"
    own.mkdir(mode=0o755)
    os.chown(own, user, user)
    made = call(user, own, "init", ".", "--no-feed")
    assert made.returncode == 0, made.stderr
    assert call(user, own, "key").stdout == made.stdout.split()[-1] + b"\n"
    own.chmod(0o777)
    told = refusal(call(user, own, "key"), 2)
    assert f"others may write to {own} (mode 0777)" in told
    own.chmod(0o755)
    (own / "hyperbloom.toml").chmod(0o666)
    assert "hyperbloom.toml (mode 0666)" in refusal(call(user, own, "key"), 2)


def test_a_node_of_roots_is_found_by_its_users(machine):
    """Such as one below /etc: root may be trusted with what root could do anyway."""
    own = machine.top / "etc"
    assert call(0, machine.top, "init", str(own), "--no-feed").returncode == 0
    own.chmod(0o755)
    told = refusal(call(ALICE, own, "put", "a value"), 4)
    assert "no node runs" in told
