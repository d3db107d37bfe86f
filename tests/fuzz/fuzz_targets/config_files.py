"""Files that somebody gives a user: a configuration, the DHT's saved state, a snapshot's paper."""

from __future__ import annotations

import tempfile
from pathlib import Path

from choices import Choices

from hyperbloom.config import ConfigError, parse_config
from hyperbloom.discovery.dht.saved_state import MAX_STATE_NODES, load_state
from hyperbloom.keys import KeyFileError, load_key_file
from hyperbloom.passphrase import PassphraseError, load_passphrase
from hyperbloom.store import StoreError
from hyperbloom.store.backup.snapshot import load_snapshot_info

MAX_BYTES = 4_096
RUNS = 75

_PATH = Path("/nowhere/hyperbloom.toml")
_FOLDER = Path(tempfile.mkdtemp(prefix="hb-"))


def fuzz(data: bytes) -> bool:
    """One of the files, with any bytes in it."""
    choices = Choices(data)
    read = choices.one_of((_config, _state, _key, _passphrase, _snapshot))
    return read(choices.rest())


def _config(data: bytes) -> bool:
    try:
        parse_config(data.decode("utf-8", "surrogateescape"), path=_PATH)
    except ConfigError:
        return False
    return True


def _state(data: bytes) -> bool:
    state = load_state(data)
    assert len(state.nodes) <= MAX_STATE_NODES
    assert load_state(state.to_bytes()) == state
    return state.node_id is not None


def _file(name: str, data: bytes) -> Path:
    path = _FOLDER / name
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def _key(data: bytes) -> bool:
    try:
        load_key_file(_file("key", data))
    except KeyFileError:
        return False
    return True


def _passphrase(data: bytes) -> bool:
    try:
        load_passphrase(_file("passphrase", data))
    except PassphraseError:
        return False
    return True


def _snapshot(data: bytes) -> bool:
    _file("snapshot.json", data)
    try:
        load_snapshot_info(_FOLDER)
    except StoreError:
        return False
    return True


def seeds() -> dict[str, bytes]:
    """A file of each kind."""
    config = (
        "[node]\ndata = 'd'\nlisten = ['tcp:4365']\nadvertise = ['192.0.2.2:1']\nleeway = '5s'\n"
        f"[[feeds]]\nkey = '{'aa' * 32}'\nalias = 'x'\npeers = ['192.0.2.3:4365']\n"
        "[limits]\nconnections = 7\n[sync]\ninterval = '1m'\n[discovery]\nenabled = true\n"
        "[objects]\nenabled = false\n[api]\nlisten = '127.0.0.1:4366'\n"
    )
    state = f'{{"version":1,"id":"{"ab" * 20}","nodes":[["{"cd" * 20}","192.0.2.1",6881]]}}'
    snapshot = (
        f'{{"node_key":"{"ab" * 32}","taken_at":5,"feeds":[{{"key":"{"cd" * 32}","count":1,'
        f'"bytes":2,"digest":"{"ef" * 32}","top_seq":3}}]}}'
    )
    return {
        "config": b"\x00" + config.encode(),
        "state": b"\x01" + state.encode(),
        "key": b"\x02" + b"ab" * 32 + b"\n",
        "passphrase": b"\x03" + b"correct horse\n",
        "snapshot": b"\x04" + snapshot.encode(),
    }
