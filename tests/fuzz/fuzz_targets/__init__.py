"""What meets foreign bytes, one module a decoder.

Each module has

- `fuzz(data)`: gives the bytes to the decoder as a stranger would. It returns whether they were
  taken to the end, and raises whatever escapes that is not the decoder's named error.
- `seeds()`: inputs to begin with, by name, each of which `fuzz` takes. The files under `seeds/`
  were made of these, from recorded bytes and golden vectors.
- `MAX_BYTES`: the longest input that is worth trying.
- `RUNS`: its part of a long run, in thousandths. The slow ones, which take 500 to 2,000 inputs a
  second because each makes a connection, a node or a store, have some three minutes each; those of
  some 10,000 a second have half of that; the rest, of some 50,000, share what is left. So all of it
  takes about half an hour of one core.

Nothing is imported here, so that whoever measures coverage can load a module in its own way.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "TARGETS", "seed_files"]

FOLDER: Final = Path(__file__).resolve().parents[1]

TARGETS: Final = tuple(
    sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")
)

# What the tests of the decoders use to make peers and nodes.
for _folder in (FOLDER.parent, *(FOLDER.parent / name for name in ("wire", "api"))):
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))


def seed_files(target: str) -> list[Path]:
    """The recorded inputs of a target: seeds first, then the cases that were found."""
    return [
        path
        for kind in ("seeds", "found")
        for path in sorted((FOLDER / kind / target).glob("*"))
        if path.is_file()
    ]
