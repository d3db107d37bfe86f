"""Files and programs that outputs, inputs and hooks name, looked at before a node has to use them.

A node starts without them, for they may come yet: a file system that is mounted later, a list that
another program writes. So what is missing is for an operator to look at, and no mistake.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from hyperbloom.credentials import FOLDER_VARIABLE, is_credential
from hyperbloom.errors import HyperbloomError
from hyperbloom.integrations.settings import (
    HookSettings,
    InputSettings,
    IntegrationsSettings,
    OutputSettings,
)
from hyperbloom.process.data_folder import user_name

__all__ = ["check_files"]

#: A key of a table, and what is odd about what it names.
_Odd = Iterator[tuple[str, str]]


def check_files(settings: IntegrationsSettings) -> Iterator[tuple[str, int, str, str]]:
    """List of tables, number of the table in it from 0, its key, and a sentence with the cure."""
    for number, output in enumerate(settings.outputs):
        yield from (("outputs", number, *odd) for odd in _output(output))
    for number, source in enumerate(settings.inputs):
        yield from (("inputs", number, *odd) for odd in _input(source))
    for number, hook in enumerate(settings.hooks):
        yield from (("hooks", number, *odd) for odd in _hook(hook))


def _output(settings: OutputSettings) -> _Odd:
    yield from _target(settings.path)
    if settings.allow is not None:
        yield from _readable("allow", settings.allow)
    yield from _program(settings.command)


def _input(settings: InputSettings) -> _Odd:
    if settings.path is not None:
        yield from _readable("path", settings.path)


def _hook(settings: HookSettings) -> _Odd:
    yield from _program(settings.command)
    secret = settings.secret
    if secret is None or (is_credential(secret) and FOLDER_VARIABLE not in os.environ):
        return
    # It brings the whole of replication along, which no other configuration needs here.
    from hyperbloom.integrations.webhooks import load_secret

    try:
        load_secret(secret)
    except HyperbloomError as error:
        yield "secret", str(error)


def _target(path: Path) -> _Odd:
    """A file that is to be written, beside which its next content is written first."""
    folder = path.parent
    if path.is_dir():
        yield "path", f"{path} is a folder; name a file in it"
    elif not os.path.lexists(folder):
        yield "path", f"the folder {folder} is not there; make it, and let the node's user write it"
    elif not folder.is_dir():
        yield "path", f"{folder} is not a folder; name a file in one"
    elif not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        who = user_name(os.geteuid())
        cure = "run this as the node's user, and let that have the folder"
        yield "path", f"{who} may not write in {folder}; {cure}"


def _readable(key: str, path: Path) -> _Odd:
    if not path.exists():
        yield key, f"there is no {path}; make it, or correct its path"
    elif path.is_dir():
        yield key, f"{path} is a folder; name a file in it"
    elif not os.access(path, os.R_OK, effective_ids=True):
        who = user_name(os.geteuid())
        yield key, f"{who} may not read {path}; run this as the node's user, and let that read it"


def _program(command: tuple[str, ...]) -> _Odd:
    """The program that a command names: by a path, or in the folders of PATH."""
    if not command or shutil.which(command[0]) is not None:
        return
    program = command[0]
    if not os.path.dirname(program):
        yield "command", f"there is no program {program} in PATH; install it, or give its path"
    elif not os.path.exists(program):
        yield "command", f"there is no {program}; install it, or correct its path"
    elif os.path.isdir(program):
        yield "command", f"{program} is a folder; name a program"
    else:
        yield "command", f"{program} may not be executed; run chmod +x on it"
