"""A configuration checked as a whole: what a node would refuse, and what is dangerous in it.

A node refuses its configuration at the first mistake. Who writes one wants to know all of them,
with their lines. So a key that is wrong is told and left out, and the rest is read again.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hyperbloom.config.check_files import check_files
from hyperbloom.config.file import Config, config_of, read_config, toml_of, why_no_toml
from hyperbloom.config.table import ConfigError
from hyperbloom.credentials import FOLDER_VARIABLE, is_credential
from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.feed_keys import FeedKeys
from hyperbloom.keys import load_key_file
from hyperbloom.passphrase import load_passphrase
from hyperbloom.process.data_folder import user_name, why_unwritable
from hyperbloom.replication.settings import NoisePolicy

__all__ = ["Checked", "Problem", "check_config"]

_OTHERS: Final = 0o077
_OTHERS_WRITE: Final = 0o022
_WORLD_READS: Final = 0o004
_LINE: Final = re.compile(r"at line (\d+)")
_HEADER: Final = re.compile(r"\s*(\[\[?)\s*([\w.-]+)\s*\]")
_KEY: Final = re.compile(r"\s*\"?([\w-]+)\"?\s*=")
_LOOPBACK: Final = re.compile(r"interface=(127\.|\\?:\\?:1$|localhost$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One sentence with its cure; `line` counts from 1, None where no line is to blame."""

    text: str
    line: int | None = None
    kind: ErrorKind = ErrorKind.BAD_CONFIG


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A node does not start with `errors`. It starts with `warnings`, which say what to look at."""

    path: Path
    errors: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


def check_config(path: Path) -> Checked:
    """What is wrong with a file and with what it names; a folder is as for `load_config`.

    Raises `ConfigError` where the file cannot be read at all.
    """
    path, text = read_config(path)
    config, errors = _parsed(text, path)
    warnings: list[Problem] = []
    # Of a file with mistakes it is not known yet which files it is to name.
    if config is not None and not errors:
        errors += _refused_files(config)
        warnings += [Problem(text=sentence) for sentence in (*config.remarks, *_dangers(config))]
        warnings += _odd_files(text, config)
    return Checked(path=path, errors=tuple(errors), warnings=tuple(warnings))


def _parsed(text: str, path: Path) -> tuple[Config | None, list[Problem]]:
    """The configuration without the keys that are wrong, and these; None where nothing is left."""
    problems: list[Problem] = []
    try:
        data = toml_of(text)
    except tomllib.TOMLDecodeError as error:
        found = _LINE.search(str(error))
        sentence = why_no_toml(error)
        return None, [Problem(text=sentence, line=int(found[1]) if found else None)]
    while True:
        try:
            return config_of(data, path=path), problems
        except ConfigError as error:
            table, key = error.table, error.key
            line = None if table is None else _line_of(text, data, table, key)
            problems.append(Problem(text=str(error).removeprefix(f"{path}: "), line=line))
            # Without a feed's key there is no feed, and what is missing cannot be left out.
            if not isinstance(table, dict) or key == "key" or table.pop(key, None) is None:
                return None, problems


def _line_of(text: str, data: Mapping[str, Any], table: object, key: str) -> int | None:
    """Where a key, or else its table, stands; None where neither is found."""
    wanted = next((place for place, found in _tables(data, ()) if found is table), None)
    place: tuple[str | int, ...] = ()
    begin = None
    for number, line in enumerate(text.splitlines(), 1):
        header = _HEADER.match(line)
        if header is not None:
            place = _place(place, header[2].split("."), is_list=header[1] == "[[")
            if place == wanted or place == (*(wanted or ()), key):
                begin = number
        elif place == wanted and (found := _KEY.match(line)) and found[1] == key:
            return number
    return begin


def _tables(data: Any, place: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every table of a file with the keys and numbers that lead to it."""
    if isinstance(data, dict):
        yield place, data
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for name, found in items:
        if isinstance(found, dict | list):
            yield from _tables(found, (*place, name))


def _place(
    before: tuple[str | int, ...], names: list[str], *, is_list: bool
) -> tuple[str | int, ...]:
    """What a header names, after the table `before`: `[[feeds]]` is the next feed."""
    place: list[str | int] = []
    for at, name in enumerate(names):
        place.append(name)
        same = list(before[: len(place)]) == place and len(before) > len(place)
        number = before[len(place)] if same else None
        if at == len(names) - 1 and is_list:
            place.append(number + 1 if isinstance(number, int) else 0)
        elif isinstance(number, int):
            place.append(number)
    return tuple(place)


def _refused_files(config: Config) -> Iterator[Problem]:
    """What keeps a node with this configuration from starting, of files and folders."""
    loads: list[tuple[Path | None, Callable[[Path], object]]] = [
        (config.identity, load_key_file),
        (config.feed_keys, lambda path: FeedKeys(path).load()),
        (config.discovery.secret if config.discovery.enabled else None, load_passphrase),
        (config.objects.passphrase_file if config.objects.enabled else None, load_passphrase),
    ]
    for token in _tokens(config):
        if is_credential(token) or os.path.lexists(token):
            loads.append((token, lambda path: load_passphrase(path, what="token")))
    for path, load in loads:
        if path is None or _is_out_of_sight(path):
            continue
        try:
            load(path)
        except HyperbloomError as error:
            yield Problem(text=str(error), kind=error.kind or ErrorKind.BAD_CONFIG)
    for folder in (config.data, config.store_path):
        why = why_unwritable(folder)
        if why is not None:
            sentence = f"the data folder cannot be written: {why}"
            yield Problem(text=sentence, kind=ErrorKind.STORE)
            return


def _tokens(config: Config) -> tuple[Path, ...]:
    return (config.api.token, config.api.metrics_token) if config.api.listen is not None else ()


def _is_out_of_sight(path: Path) -> bool:
    """Whether a path is of a credential, which only the unit is given."""
    return is_credential(path) and FOLDER_VARIABLE not in os.environ


def _dangers(config: Config) -> Iterator[str]:
    """What a node takes without a word, and an operator may not have meant."""
    yield from _open_file(config)
    yield from _data_folder(config)
    for path in (config.identity, config.api.token, config.api.metrics_token):
        if _is_out_of_sight(path):
            yield f"{path} is a credential of the unit, and only a process of the unit can check it"
    if config.noise is NoisePolicy.OFF:
        yield (
            '[node] noise: "off" protects no stream: who is on the path and knows the feed\'s key '
            'reads all of it; say "prefer"'
        )
    if (
        config.objects.enabled
        and config.objects.passphrase_file is None
        and any(_LOOPBACK.search(text) is None for text in config.objects.listen)
    ):
        yield (
            "[objects] listen: whoever reaches the port may change the pool; set passphrase_file, "
            "or listen on 127.0.0.1 only"
        )


def _odd_files(text: str, config: Config) -> Iterator[Problem]:
    """What is odd about what outputs, inputs and hooks name, each with its line."""
    data = tomllib.loads(text)
    for kind, number, key, sentence in check_files(config.integrations):
        line = _line_of(text, data, data[kind][number], key)
        yield Problem(text=f"[[{kind}]] {number + 1} {key}: {sentence}", line=line)


def _open_file(config: Config) -> Iterator[str]:
    """What others may do with the file itself."""
    mode = stat.S_IMODE(config.path.stat().st_mode)
    if mode & _OTHERS_WRITE:
        yield f"{config.path} can be written by others (mode {mode:04o}); run chmod go-w on it"
    if mode & _WORLD_READS and config.feeds:
        yield (
            f"{config.path} names keys of feeds, by which their streams can be read, and everybody "
            f"may read it (mode {mode:04o}); run chmod o-r on it"
        )


def _data_folder(config: Config) -> Iterator[str]:
    """What is odd about the data folder; a folder that cannot be written is an error already."""
    try:
        status = config.data.stat()
        key_owner = config.identity.stat().st_uid
    except OSError:
        if not config.data.exists():
            yield f"the data folder {config.data} is not there yet; the node makes it"
        return
    mode = stat.S_IMODE(status.st_mode)
    if mode & _OTHERS:
        yield (
            f"the data folder {config.data} is open to others (mode {mode:04o}), and the values in "
            "it are not encrypted; run chmod 700 on it"
        )
    if status.st_uid != key_owner and not is_credential(config.identity):
        yield (
            f"the data folder {config.data} belongs to {user_name(status.st_uid)} and the key file "
            f"{config.identity} to {user_name(key_owner)}; let the node's user have both"
        )
