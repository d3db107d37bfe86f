"""An environment as on a machine without Java: all programs of the PATH but that one."""

from __future__ import annotations

import os
from pathlib import Path


def without_java(folder: Path) -> dict[str, str]:
    """The environment for a process; links to the programs are made in ``folder``."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.glob("*"):
            if program.name != "java" and not (folder / program.name).is_symlink():
                (folder / program.name).symlink_to(program.absolute())
    return {k: v for k, v in os.environ.items() if k != "JAVA_HOME"} | {"PATH": str(folder)}
