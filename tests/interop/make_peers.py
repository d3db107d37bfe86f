"""Makes what tests talk to or look with: the npm packages and the Rust program.

    PYTHONPATH=tests python tests/interop/make_peers.py

Each test makes what it needs by itself. Run before the tests, this makes all of it meanwhile; it
needs no package of Python's.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import npm_peer
import tracker_crate

DHT_NODES = npm_peer.HERE / "dht"
"""The folder of the package files of the DHT nodes that npm has."""
PAGE_RULES = npm_peer.HERE.parent / "api" / "axe"
"""The same of the rules by which the status page is looked at."""


def main() -> None:
    """Make them all at once; raises what the first that fails raises."""
    with ThreadPoolExecutor() as threads:
        made: list[Future[Path]] = [
            threads.submit(tracker_crate.build),
            threads.submit(npm_peer.install),
            threads.submit(npm_peer.install, manifests=DHT_NODES),
            threads.submit(npm_peer.install, manifests=PAGE_RULES),
        ]
    for each in made:
        each.result()


if __name__ == "__main__":
    main()
