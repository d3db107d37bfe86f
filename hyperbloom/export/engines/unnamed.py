"""Files without a name, for what tasks pass on: gone when no process has them open any more.

So an export that is killed leaves none, by whatever signal. A process that did not make a file
opens it by the path that Linux gives to a descriptor. Where there are no such paths, files have
names, and go when the export ends.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Final

__all__ = ["unnamed_files"]

_DESCRIPTORS: Final = Path("/proc/self/fd")
_PREFIX: Final = "hyperbloom-export-"


@contextmanager
def unnamed_files() -> Iterator[Callable[[], Path]]:
    """Makes new files in the temporary folder, which last as long as the block.

    Their paths are good on this machine alone, for processes of the same user. Raises OSError.
    """
    with ExitStack() as stack:
        if not _DESCRIPTORS.is_dir():
            folder = Path(stack.enter_context(TemporaryDirectory(prefix=_PREFIX)))
            yield lambda: _named(folder)
            return

        def unnamed() -> Path:
            file = stack.enter_context(TemporaryFile(prefix=_PREFIX))
            return Path(f"/proc/{os.getpid()}/fd/{file.fileno()}")

        yield unnamed


def _named(folder: Path) -> Path:
    path = folder / str(len(list(folder.iterdir())))
    path.touch(0o600)
    return path
