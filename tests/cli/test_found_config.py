"""Which configuration counts that nobody named: by owners, modes, groups and links."""

from __future__ import annotations

import grp
import os
import pwd
import struct
from types import SimpleNamespace

import pytest

from hyperbloom.cli.found_config import MAX_LINKS, user_name, why_not_found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of the caller's with a configuration, the current one."""
    made = tmp_path / "node"
    made.mkdir(mode=0o755)
    (made / "hyperbloom.toml").write_text("[node]\n")
    (made / "hyperbloom.toml").chmod(0o644)
    monkeypatch.chdir(made)
    return made


def found():
    return why_not_found("hyperbloom.toml")


def members(monkeypatch, *, called="me", named=(), by_primary_group=()):
    """What every group is called, who is in it by its list and by their own entries."""
    group, others = os.getegid(), [os.geteuid() + 1, os.geteuid() + 2]
    users = {"me": os.geteuid(), "zoe": others[0], "yves": others[1]}
    entries = [
        SimpleNamespace(pw_name=name, pw_uid=user, pw_gid=group if name in by_primary_group else -2)
        for name, user in users.items()
    ]
    monkeypatch.setattr(
        grp, "getgrgid", lambda _: SimpleNamespace(gr_name=called, gr_mem=list(named))
    )
    monkeypatch.setattr(pwd, "getpwall", lambda: entries)
    by_name = {entry.pw_name: entry for entry in entries}
    monkeypatch.setattr(pwd, "getpwnam", lambda name: by_name[name])
    monkeypatch.setattr(pwd, "getpwuid", lambda _: entries[0])


def test_ones_own_is_taken(folder):
    assert found() is None
    assert why_not_found(folder / "hyperbloom.toml") is None


@pytest.mark.parametrize(
    ("mode", "entry"),
    [(0o757, "."), (0o1757, "."), (0o646, "hyperbloom.toml"), (0o757, ".."), (0o602, "..")],
)
def test_what_others_may_write_to_is_not(folder, mode, entry):
    entry = (folder / entry).resolve()
    entry.chmod(mode | 0o100 if entry.is_dir() else mode)
    assert found() == f"others may write to {entry} (mode {entry.stat().st_mode & 0o7777:04o})"


def test_a_sticky_bit_helps_above_the_folder_alone(folder):
    folder.parent.chmod(0o1777)
    assert found() is None
    folder.chmod(0o1777)
    assert "(mode 1777)" in found()


@pytest.mark.parametrize(
    ("named", "by_primary_group", "is_taken"),
    [
        ((), ("me",), True),
        (("me",), ("me",), True),
        ((), (), True),
        (("zoe",), ("me",), False),
        ((), ("me", "zoe"), False),
        (("me", "nobody knows"), ("me",), False),
    ],
)
def test_a_group_counts_by_who_is_in_it(folder, monkeypatch, named, by_primary_group, is_taken):
    """With an umask of 002, as where each user has a group, all is the group's to write."""
    members(monkeypatch, named=named, by_primary_group=by_primary_group)
    folder.chmod(0o775)
    (folder / "hyperbloom.toml").chmod(0o664)
    assert (found() is None) == is_taken


def test_a_group_that_many_may_share_is_not_ones_own(folder, monkeypatch):
    """Of those in it by their own entries a directory service may list none but the caller."""
    members(monkeypatch, called="domain users", by_primary_group=("me",))
    folder.chmod(0o775)
    assert found() == f"others may write to {folder} (mode 0775)"


def test_behind_an_acl_the_bits_of_the_group_say_nothing_of_it(folder, monkeypatch):
    members(monkeypatch, by_primary_group=("me",))
    folder.chmod(0o775)
    assert found() is None
    entries = ((1, 7, -1), (2, 7, 61_001), (4, 7, -1), (16, 7, -1), (32, 5, -1))
    acl = (2).to_bytes(4, "little") + b"".join(
        struct.pack("<HHi", tag, rights, who) for tag, rights, who in entries
    )
    try:
        os.setxattr(folder, "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"the file system of the temporary folder has no ACLs ({error.strerror})")
    assert found() == f"others may write to {folder} (mode 0775)"


def test_links_are_followed_each_over_its_folders(folder, tmp_path):
    far = tmp_path / "far"
    far.mkdir()
    (folder / "hyperbloom.toml").rename(far / "real.toml")
    (far / "next").symlink_to("../far/./real.toml")
    (folder / "hyperbloom.toml").symlink_to(far / "next")
    assert found() is None
    far.chmod(0o777)
    assert found() == f"others may write to {far} (mode 0777)"


def test_links_that_lead_nowhere_are_said(folder):
    path = folder / "hyperbloom.toml"
    path.unlink()
    path.symlink_to("hyperbloom.toml")
    assert "cannot be looked at (too many symbolic links)" in found()
    path.unlink()
    for number in range(MAX_LINKS - 1):
        (folder / f"{number}").symlink_to(f"{number + 1}")
    (folder / f"{MAX_LINKS - 1}").write_text("[node]\n")
    path.symlink_to("0")
    assert found() is None
    (folder / f"{MAX_LINKS - 1}").unlink()
    assert found() == "hyperbloom.toml cannot be looked at (No such file or directory)"


def test_users_are_named_as_sudo_takes_them():
    assert user_name(0) == "root"
    assert user_name(4_000_000_123) == "#4000000123"


def test_a_command_says_what_to_do_about_it(folder, offline):
    folder.chmod(0o777)
    told = offline.refusal(2, "status")
    assert told == (
        f"hyperbloom.toml in this folder is not taken by itself, for others may write to {folder} "
        "(mode 0777): whoever wrote it would choose the node, and the programs that `run` starts. "
        "If that is the node you mean, name it: `-c hyperbloom.toml` (see `hyperbloom status "
        "--help`)"
    )
    assert "no node runs" in offline.refusal(4, "status", "-c", "hyperbloom.toml")
