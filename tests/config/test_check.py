"""`config check`: every mistake with its line and cure, and what is dangerous."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hyperbloom.cli.root import hyperbloom
from hyperbloom.config.check import Checked, check_config
from hyperbloom.config.file import MAX_CONFIG_BYTES
from hyperbloom.config.table import ConfigError
from hyperbloom.exit_codes import ExitCode

KEY = "ab" * 32
OTHER_USER = 1


def checked(folder: Path, text: str, *, mode: int = 0o600) -> Checked:
    path = folder / "hyperbloom.toml"
    path.write_text(text)
    path.chmod(mode)
    return check_config(path)


def errors(folder: Path, text: str) -> list[tuple[int | None, str]]:
    found = checked(folder, text)
    assert not found.warnings
    return [(problem.line, problem.text) for problem in found.errors]


def warning(folder: Path, text: str, *, mode: int = 0o600) -> str:
    found = checked(folder, text, mode=mode)
    assert not found.errors
    (problem,) = found.warnings
    return problem.text


def test_nothing_is_wrong(folder: Path) -> None:
    found = checked(folder, f'[node]\n[[feeds]]\nkey = "{KEY}"\n')
    assert (found.errors, found.warnings) == ((), ())
    assert sorted(path.name for path in folder.iterdir()) == ["hyperbloom.toml", "identity.key"]


def test_every_mistake_is_told_with_its_line(folder: Path) -> None:
    text = f"""\
log_level = "info"
[node]
listne = ["tcp:1"]
leeway = -1

[[feeds]]
key = "{KEY}"
mode = "fully"
[[feeds]]
key = "{"cd" * 32}"
[[feeds.ranges]]
start = "a"
finish = "b"
[discovery.dht]
max_items = "many"
[limit]
"""
    assert [line for line, _ in errors(folder, text)] == [1, 16, 3, 4, 8, 13, 9, 15]
    sentences = [sentence for _, sentence in errors(folder, text)]
    assert sentences[0] == "log_level belongs under [node]; move it there"
    assert sentences[2] == "[node] listne: there is no such key; did you mean listen?"
    assert sentences[5].endswith(
        "finish: there is no such key; known are start, end, start_hex, end_hex"
    )
    assert sentences[6] == '[[feeds]] 2 ranges: is only for mode = "range"'
    assert sentences[7].startswith("[discovery.dht] max_items: must be a whole number, not")


def test_a_feed_without_a_key_is_told_at_its_header(folder: Path) -> None:
    found = errors(folder, f'[node]\n[[feeds]]\nkey = "{KEY}"\n[[feeds]]\nalias = "x"\n')
    assert found == [(4, "[[feeds]] 2 key: is missing; it is the feed's public key, 64 hex digits")]


def test_what_is_not_toml_is_told_with_its_line(folder: Path) -> None:
    ((line, sentence),) = errors(folder, '[node]\nlisten = "tcp:1\n')
    assert line == 2
    assert sentence.startswith("this is not TOML: ")


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "a = " + "9" * 5_000])
def test_what_python_cannot_read_is_not_toml_either(folder: Path, text: str) -> None:
    ((_, sentence),) = errors(folder, text)
    assert sentence.startswith("this is not TOML: too many ")


@pytest.mark.parametrize("more", [0, 1])
def test_a_file_has_a_length(folder: Path, more: int) -> None:
    path = folder / "hyperbloom.toml"
    path.write_bytes(b"[node]\n".ljust(MAX_CONFIG_BYTES + more, b"#"))
    if more:
        with pytest.raises(ConfigError, match="more than 4,194,304 bytes"):
            check_config(path)
        path.unlink()
        path.symlink_to("/dev/zero")
        with pytest.raises(ConfigError, match="more than 4,194,304 bytes"):
            check_config(path)
    else:
        assert check_config(path).errors == ()


def test_files_that_the_node_would_refuse(folder: Path) -> None:
    (folder / "identity.key").chmod(0o640)
    (folder / "feed-keys").mkdir(mode=0o755)
    (folder / "pass").write_text("two\nlines\n")
    (folder / "pass").chmod(0o600)
    (folder / "api.token").write_text("x")
    (folder / "api.token").chmod(0o644)
    text = """\
[api]
listen = "127.0.0.1:4366"
[discovery]
enabled = true
secret = "missing"
[objects]
enabled = true
passphrase_file = "pass"
"""
    sentences = [sentence for _, sentence in errors(folder, text)]
    told = (
        "run chmod 600 on it",
        "run chmod 700 on it",
        "make it, or correct",
        "one line",
        "chmod",
    )
    assert len(sentences) == len(told)
    for sentence, words in zip(sentences, told, strict=True):
        assert words in sentence


def test_a_data_folder_that_cannot_be_used(folder: Path) -> None:
    (folder / "file").touch()
    text = f'[node]\ndata = "{folder / "file"}"\nidentity = "{folder / "identity.key"}"\n'
    text += f'feed_keys = "{folder / "feed-keys"}"\n'
    found = checked(folder, text)
    (problem,) = found.errors
    assert "is in the way" in problem.text
    assert problem.kind.exit_code == ExitCode.STORE


def test_dangers(folder: Path) -> None:
    pool = '[objects]\nenabled = true\nlisten = ["{}"]\n'
    assert "run chmod go-w on it" in warning(folder, "[node]\n", mode=0o620)
    assert "run chmod o-r on it" in warning(folder, f'[[feeds]]\nkey = "{KEY}"\n', mode=0o644)
    assert '"off" protects no stream' in warning(folder, '[node]\nnoise = "off"\n')
    assert "whoever reaches the port" in warning(folder, pool.format("tcp:1"))
    for address in ("127.0.0.1", r"\\:\\:1"):
        assert not checked(folder, pool.format(f"tcp:1:interface={address}")).warnings
    absent = f'[node]\ndata = "new"\nidentity = "{folder}/identity.key"\n'
    assert "is not there yet; the node makes it" in warning(folder, absent)
    folder.chmod(0o750)
    assert "is open to others (mode 0750)" in warning(folder, "[node]\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_data_folder_of_another_user(folder: Path) -> None:
    os.chown(folder, OTHER_USER, -1)
    assert "let the node's user have both" in warning(folder, "[node]\n")


def test_a_credential_is_out_of_sight_outside_the_unit(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    text = '[node]\nidentity = "credential:identity.key"\n'
    assert "only a process of the unit can check it" in warning(folder, text)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(folder / "none"))
    ((_, sentence),) = errors(folder, text)
    assert "LoadCredential=identity.key:FILE" in sentence


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        hyperbloom.main(["config", "check", *arguments])
    return int(ended.value.code or 0)


def test_the_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked(folder, "[node]\n\nlistne = 1\n")
    path = folder / "hyperbloom.toml"
    assert run(str(folder)) == ExitCode.CONFIG
    assert capsys.readouterr().out == (
        "error: line 3: [node] listne: there is no such key; did you mean listen?\n"
        f"{path}: 1 error, 0 warnings\n"
    )
    assert run("--json", str(path)) == ExitCode.CONFIG
    form = json.loads(capsys.readouterr().out)
    assert form == {
        "config": str(path),
        "errors": [
            {"line": 3, "text": "[node] listne: there is no such key; did you mean listen?"}
        ],
        "warnings": [],
    }
    path.write_text('[node]\nnoise = "off"\n')
    assert run("-c", str(path)) == 0
    assert capsys.readouterr().out.startswith("warning: [node] noise")
    assert run(str(folder / "none")) == ExitCode.CONFIG
    assert "there is no such file" in capsys.readouterr().err
