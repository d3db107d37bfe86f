"""What the store asks of the file system beside LMDB."""

import os
from pathlib import Path

__all__ = ["sync"]


def sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk; OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
