"""Chromium for tests: found in the PATH, or Debian's package unpacked into `.cache/chromium`.

What the machine has is taken, else the package and what it still needs here.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from debian_packages import CACHE, unpacked

PACKAGE = "chromium"
#: A font for a machine that has none: without one a page has no text.
FONT = "fonts-dejavu-core"
NAMES = ("chromium", "chromium-browser", "chromium-headless-shell", "google-chrome")
LIBRARY = re.compile(r"\.so[.0-9]*$")


def browser(cache: Path = CACHE / "chromium") -> list[str]:
    """The beginning of a command that runs a browser, unpacked now if it is not here.

    Raises UnavailableError.
    """
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is not None:
        return [found]
    folder = unpacked([PACKAGE, FONT], cache)
    libraries = [folder / "usr/lib/chromium", *_library_folders(folder)]
    path = ":".join([*map(str, libraries), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    fonts = _fonts(folder)
    program = folder / "usr/lib/chromium/chromium"
    return ["env", f"LD_LIBRARY_PATH={path}", *fonts, str(program)]


def _library_folders(folder: Path) -> list[Path]:
    """Where the unpacked packages have libraries."""
    found = {path.parent for path in folder.glob("**/lib/**/*.so*") if LIBRARY.search(path.name)}
    return sorted(found - {folder / "usr/lib/chromium"})


def _fonts(folder: Path) -> list[str]:
    """How fontconfig finds the unpacked fonts; nothing where the machine has its own."""
    if Path("/etc/fonts/fonts.conf").exists() and Path("/usr/share/fonts").exists():
        return []
    config = folder / "fonts.conf"
    config.write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">'
        f"<fontconfig><dir>{folder}/usr/share/fonts</dir>"
        f"<cachedir>{folder}/fonts-cache</cachedir></fontconfig>"
    )
    return [f"FONTCONFIG_FILE={config}"]


if __name__ == "__main__":
    print(*browser())
