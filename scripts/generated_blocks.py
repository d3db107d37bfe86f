"""Parts of the pages under docs/ that are written by scripts, between two marks.

A page holds `<!-- NAME: written by scripts/SCRIPT -->` and `<!-- end of NAME -->`; what stands
between them is a block. A script names its blocks and their texts and calls `main`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ROOT", "main", "replaced", "table"]

ROOT = Path(__file__).resolve().parent.parent


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    cells = ([cell.replace("|", "\\|") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def replaced(page: str, name: str, script: str, text: str) -> str:
    """The page with a new text in one of its blocks; ValueError when it has no such block."""
    begin, end = f"<!-- {name}: written by scripts/{script} -->\n", f"<!-- end of {name} -->\n"
    if page.count(begin) != 1 or page.count(end) != 1:
        raise ValueError(f"the page needs one {begin.strip()} and one {end.strip()}")
    head, _, rest = page.partition(begin)
    return head + begin + text + end + rest.partition(end)[2]


def main(script: str, blocks: Mapping[tuple[str, str], str]) -> int:
    """Write the blocks, (page, name) → text; with --check only say which are stale, and exit 1."""
    unknown = [argument for argument in sys.argv[1:] if argument != "--check"]
    if unknown:
        sys.stderr.write(f"scripts/{script} takes --check and nothing else\n")
        return 2
    stale = []
    for (name, block), text in blocks.items():
        path = ROOT / "docs" / name
        page = path.read_text(encoding="utf-8")
        fresh = replaced(page, block, script, text)
        if fresh == page:
            continue
        if "--check" in sys.argv:
            stale.append(f"docs/{name}: {block} is stale: run scripts/{script}\n")
        else:
            path.write_text(fresh, encoding="utf-8")
    sys.stderr.writelines(stale)
    return 1 if stale else 0
