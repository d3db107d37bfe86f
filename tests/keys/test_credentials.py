"""Credentials of systemd: its two forms of a secret file are taken, and nothing that is wider."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import pytest

from hyperbloom.api.http.access import load_token
from hyperbloom.config import Config, ConfigError, parse_config
from hyperbloom.credentials import credential_path
from hyperbloom.keys import Identity, KeyFileError, load_key_file
from hyperbloom.passphrase import PassphraseError, load_passphrase

SEED = bytes(range(32))
READ, ENTER = 4, 5
#: Another user, who the unit runs as in a file system with ACLs.
UNIT_USER = 64_321
ACL = "system.posix_acl_access"
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
NOBODY = 0xFFFF_FFFF


def give_acl(path: Path, rights: int, *more: tuple[int, int, int], group: int = 0) -> None:
    """What `fd_add_uid_acl_permission` of systemd leaves; `more` are further entries."""
    entries = [
        (USER_OBJ, rights, NOBODY),
        (USER, rights, UNIT_USER),
        (GROUP_OBJ, group, NOBODY),
        *more,
        (MASK, rights, NOBODY),
        (OTHER, 0, NOBODY),
    ]
    packed = b"".join(struct.pack("<HHI", *entry) for entry in sorted(entries))
    try:
        os.setxattr(path, ACL, struct.pack("<I", 2) + packed)
    except OSError as error:
        pytest.skip(f"this file system has no ACLs: {error.strerror}")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as systemd names it to its unit, with a node's key and a line of text."""
    made = tmp_path / "credentials"
    made.mkdir(mode=0o700)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(made))
    for name, text in (("identity.key", SEED.hex()), ("line", "opensesame")):
        (made / name).write_text(text)
        (made / name).chmod(0o400)
    return made


def parsed(text: str) -> Config:
    return parse_config(text, path=Path("/etc/hyperbloom/hyperbloom.toml"))


def read_both(folder: Path) -> None:
    assert load_key_file(folder / "identity.key") == Identity(SEED)
    assert load_passphrase(folder / "line") == "opensesame"


def refuse_both(folder: Path) -> None:
    with pytest.raises(KeyFileError, match="is open to others than its owner"):
        load_key_file(folder / "identity.key")
    with pytest.raises(PassphraseError, match="is open to others than its owner"):
        load_passphrase(folder / "line")


def with_acls(folder: Path, *more: tuple[int, int, int], group: int = 0) -> None:
    for path in folder.iterdir():
        give_acl(path, READ, *more, group=group)
        assert path.stat().st_mode & 0o777 == 0o440
    folder.chmod(0o500)
    give_acl(folder, ENTER)
    assert folder.stat().st_mode & 0o777 == 0o550


def test_where_systemd_gives_files_to_the_user(folder: Path) -> None:
    folder.chmod(0o500)
    read_both(folder)


def test_where_systemd_gives_the_user_an_entry_of_the_acl(folder: Path) -> None:
    with_acls(folder)
    read_both(folder)


def test_the_same_file_is_refused_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_acls(folder)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    refuse_both(folder)


def test_a_group_that_may_read_is_refused(folder: Path) -> None:
    for path in folder.iterdir():
        path.chmod(0o440)
    refuse_both(folder)


def test_a_group_or_a_second_user_in_the_acl_is_refused(folder: Path) -> None:
    with_acls(folder, group=READ)
    refuse_both(folder)
    with_acls(folder, (GROUP, READ, 50))
    refuse_both(folder)
    with_acls(folder, (USER, READ, UNIT_USER + 1))
    refuse_both(folder)


@pytest.mark.parametrize("mode", [0o444, 0o460, 0o441, 0o404])
def test_more_than_reading_by_the_acl_is_refused(folder: Path, mode: int) -> None:
    with_acls(folder)
    for path in folder.iterdir():
        path.chmod(mode)
    refuse_both(folder)


def test_a_folder_that_others_enter_is_refused(folder: Path) -> None:
    with_acls(folder)
    folder.chmod(0o555)
    refuse_both(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(folder: Path) -> None:
    with_acls(folder)
    for path in folder.iterdir():
        os.chown(path, UNIT_USER, -1)
    refuse_both(folder)


def test_the_configuration_names_credentials(folder: Path) -> None:
    config = parsed(
        '[node]\ndata = "/var/lib/hyperbloom"\nidentity = "credential:identity.key"\n'
        '[api]\ntoken = "credential:api.token"\n'
        '[discovery]\nsecret = "credential:secret"\n'
        '[objects]\npassphrase_file = "credential:pool"\n'
    )
    assert config.identity == folder / "identity.key"
    assert config.api.token == folder / "api.token"
    assert config.discovery.secret == folder / "secret"
    assert config.objects.passphrase_file == folder / "pool"
    assert str(config.feed_keys) == "/var/lib/hyperbloom/feed-keys"


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../identity.key", "x" * 256, "a b"])
def test_what_is_no_name_of_a_credential_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="names no credential; write the name that LoadCredent"):
        parsed(f'[node]\nidentity = "credential:{name}"\n')


def test_outside_the_unit_it_is_looked_for_in_the_units_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    path = credential_path("identity.key")
    assert str(path) == "/run/credentials/hyperbloom.service/identity.key"


def test_one_that_is_missing_says_what_to_write_into_the_unit(folder: Path) -> None:
    with pytest.raises(KeyFileError, match=r"by LoadCredential=node\.key:FILE, and start the node"):
        load_key_file(folder / "node.key")
    # A token is made elsewhere, not in a folder of systemd's.
    with pytest.raises(PassphraseError, match=r"by LoadCredential=api\.token:FILE"):
        load_token(folder / "api.token")
    assert not (folder / "api.token").exists()
