"""Reads the snapshot in a folder each time it is told to; run as a child, because it may die.

It says `ok`, `refused` for an error that the store names, or the name of any other error.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

from hyperbloom.store import Store, StoreError
from hyperbloom.store.backup.snapshot import load_snapshot_info
from hyperbloom.store.backup.verify import verify_path

#: What reading a snapshot of some pages may take: LMDB maps no more than the file, so this is ours.
MOST_BYTES = 1 << 30


def read(folder: Path) -> str:
    """Verify it and open it, as commands and exports do."""
    try:
        load_snapshot_info(folder)
        report = verify_path(folder)
        Store.open_readonly(folder).close()
    except StoreError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    return "ok" if report.ok else "refused"


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    for _ in sys.stdin:
        print(read(Path(sys.argv[1])), flush=True)
