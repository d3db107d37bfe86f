"""`config check` of what outputs, inputs and hooks name: files, folders and programs."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from hyperbloom.config import check_files
from hyperbloom.config.check import check_config

OUTPUT = '[[outputs]]\nname = "a"\nformat = "lines"\n'
INPUT = '[[inputs]]\nname = "a"\n'
SECRET = f"whsec_{base64.b64encode(bytes(24)).decode()}\n"
HOOK = '[[hooks]]\nname = "a"\n'


def warnings(folder: Path, text: str) -> list[tuple[int | None, str]]:
    path = folder / "hyperbloom.toml"
    path.write_text(text)
    path.chmod(0o600)
    found = check_config(path)
    assert found.errors == ()
    return [(problem.line, problem.text) for problem in found.warnings]


def test_what_is_there_is_well(folder: Path) -> None:
    (folder / "list").touch()
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o600)
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o700)
    text = (
        OUTPUT
        + f'path = "out"\nallow = "list"\ncommand = ["true"]\n{INPUT}path = "list"\n'
        + '[[inputs]]\nname = "b"\nurl = "https://lists.example/"\n'
        + f'{HOOK}command = ["{folder}/program", "-x"]\n'
        + '[[hooks]]\nname = "b"\nurl = "https://hooks.example/"\nsecret = "secret"\n'
    )
    assert warnings(folder, text) == []
    assert not (folder / "out").exists()


def test_each_is_told_with_its_line_and_its_cure(folder: Path) -> None:
    (folder / "text").touch()
    (folder / "folder").mkdir()
    (folder / "secret").write_text(SECRET)
    (folder / "secret").chmod(0o644)
    (folder / "word").write_text("a secret\n")
    (folder / "word").chmod(0o600)
    text = f"""\
[[outputs]]
name = "one"
path = "none/out"
format = "lines"
allow = "missing"
command = ["no-such-program-anywhere"]
[[outputs]]
name = "two"
path = "folder"
format = "lines"
[[outputs]]
format = "lines"
path = "text/out"
name = "three"
[[inputs]]
name = "list"
path = "missing"
[[hooks]]
name = "bell"
command = ["{folder}/text"]
[[hooks]]
name = "horn"
command = ["{folder}/none", "x"]
[[hooks]]
name = "drum"
url = "https://hooks.example/"
secret = "secret"
[[hooks]]
name = "fife"
url = "https://hooks.example/"
secret = "word"
"""
    found = warnings(folder, text)
    assert [line for line, _ in found] == [3, 5, 6, 9, 13, 17, 20, 23, 27, 31]
    said = [sentence for _, sentence in found]
    assert said[0] == (
        f"[[outputs]] 1 path: the folder {folder}/none is not there; make it, and let the node's "
        "user write it"
    )
    assert said[1] == (
        f"[[outputs]] 1 allow: there is no {folder}/missing; make it, or correct its path"
    )
    assert said[2].endswith(
        "no program no-such-program-anywhere in PATH; install it, or give its path"
    )
    assert said[3] == f"[[outputs]] 2 path: {folder}/folder is a folder; name a file in it"
    assert said[4] == f"[[outputs]] 3 path: {folder}/text is not a folder; name a file in one"
    assert said[5].startswith(f"[[inputs]] 1 path: there is no {folder}/missing")
    assert said[6] == f"[[hooks]] 1 command: {folder}/text may not be executed; run chmod +x on it"
    assert said[7].startswith(f"[[hooks]] 2 command: there is no {folder}/none")
    assert said[8].startswith(
        f"[[hooks]] 3 secret: the webhook secret file {folder}/secret is open to others"
    )
    assert "must hold whsec_ and base64" in said[9]


def test_what_its_user_may_not_use(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As another user than root sees it, who may do everything."""
    shut, access = folder / "shut", os.access
    shut.mkdir()
    (shut / "list").touch()

    def as_another(path: Path, mode: int, **more: bool) -> bool:
        return not path.is_relative_to(shut) and access(path, mode, **more)

    monkeypatch.setattr(check_files.os, "access", as_another)
    found = warnings(folder, f'{OUTPUT}path = "shut/out"\n{INPUT}path = "shut/list"\n')
    assert [line for line, _ in found] == [4, 7]
    assert f"may not write in {shut}; run this as the node's user" in found[0][1]
    assert f"may not read {shut}/list; run this as the node's user" in found[1][1]


def test_a_credential_is_for_the_unit_to_see(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    text = f'{HOOK}url = "https://hooks.example/"\nsecret = "credential:hook.secret"\n'
    assert warnings(folder, text) == []
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", os.fspath(folder / "none"))
    ((line, sentence),) = warnings(folder, text)
    assert line == 4
    assert "LoadCredential=hook.secret:FILE" in sentence
