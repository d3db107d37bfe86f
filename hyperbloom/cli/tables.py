"""Tables for people: as wide as the terminal, and no cell broken over two lines.

Keys give way first, then names; addresses, dates and numbers never do. Where even that does not
fit, each row is shown as a block of lines instead, with nothing left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hyperbloom.cli.printable import printable
from hyperbloom.feed_words import LEAST_DIGITS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Cell", "Key", "Name", "PeerKey", "key_text", "piped", "print_table"]

#: Characters of a key where there is room: as many as stand for it in a command.
KEY_CHARACTERS = LEAST_DIGITS
#: Characters below which a key does not shrink: two keys are then alike by no chance.
LEAST_CHARACTERS = 8
#: Characters of a name, where it has more, that stay where there is little room.
LEAST_NAME = 10
#: Spaces between two columns.
GAP = 2


@dataclass(frozen=True, slots=True)
class Key:
    """A key in a table: its first digits for people, or what they call it; whole for pipes."""

    text: str | None
    name: str | None = None

    least = LEAST_CHARACTERS

    def whole(self) -> str:
        """All there is to show."""
        return self.name or self.text or "-"

    def wide(self) -> str:
        """What is shown where there is room."""
        return self.name or _cut(self.text or "-", KEY_CHARACTERS + 1)


@dataclass(frozen=True, slots=True)
class PeerKey:
    """A peer's key in a table: the operator's name for it and its first digits; whole for pipes.

    Where there is little room the digits give way, and the name stays.
    """

    text: str
    name: str | None = None

    @property
    def least(self) -> int:
        """As many characters of a name as tell most of them apart, or digits."""
        return (
            LEAST_CHARACTERS
            if self.name is None
            else min(cell_width(printable(self.name)), LEAST_NAME)
        )

    def whole(self) -> str:
        """All there is to show."""
        return key_text(self.text, self.name)

    def wide(self) -> str:
        """What is shown where there is room."""
        if self.name is None:
            return _cut(self.text, KEY_CHARACTERS + 1)
        return f"{self.name} ({self.text[:KEY_CHARACTERS]})"


def key_text(key: str, name: str | None) -> str:
    """A key with all its digits, and before it what the operator calls it."""
    return key if name is None else f"{name} ({key})"


@dataclass(frozen=True, slots=True)
class Name:
    """A name that somebody gave; its start is enough beside a key."""

    text: str

    least = 16

    def whole(self) -> str:
        """All of it."""
        return self.text

    wide = whole


Cell = str | Key | PeerKey | Name


def cell_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def _cut(text: str, width: int) -> str:
    from rich.cells import cell_len

    if cell_len(text) <= width:
        return text
    while cell_len(text) >= width:
        text = text[:-1]
    return f"{text}…"


def piped(cell: Cell) -> str:
    """A cell for programs: whole, and without the characters that part cells and rows."""
    return printable(cell if isinstance(cell, str) else cell.text or "-")


def _wide(cell: Cell) -> str:
    return printable(cell if isinstance(cell, str) else cell.wide())


def _whole(cell: Cell) -> str:
    return printable(cell if isinstance(cell, str) else cell.whole())


def _fitting(cell: Cell, width: int) -> str:
    if isinstance(cell, str):
        return _wide(cell)
    if isinstance(cell, PeerKey) and cell.name is not None:
        name = printable(cell.name)
        digits = min(KEY_CHARACTERS, width - cell_width(f"{name} ()"))
        return _cut(name if digits < LEAST_CHARACTERS else f"{name} ({cell.text[:digits]})", width)
    return _cut(_wide(cell), width)


def _widths(names: Sequence[str], rows: Sequence[Sequence[Cell]], room: int) -> list[int] | None:
    """How wide each column is, so that all of them fit into `room`; None if they cannot."""
    from rich.cells import cell_len

    widths, least = [], []
    for name, column in zip(names, zip(*rows, strict=True), strict=True):
        head = cell_len(name)
        wide = max(head, *(cell_len(_wide(c)) for c in column))
        widths.append(wide)
        least.append(max(head, *(min(cell_len(_wide(c)), _least(c)) for c in column)))
    excess = sum(widths) + GAP * (len(names) - 1) - room
    for kind in ((Key, PeerKey), (Name,)):
        giving = [i for i, row in enumerate(zip(*rows, strict=True)) if _has(row, kind)]
        while excess > 0 and any(widths[i] > least[i] for i in giving):
            widest = max((i for i in giving if widths[i] > least[i]), key=lambda i: widths[i])
            widths[widest] -= 1
            excess -= 1
    return widths if excess <= 0 else None


def _least(cell: Cell) -> float:
    return math.inf if isinstance(cell, str) else cell.least


def _has(cells: Sequence[Cell], kinds: tuple[type, ...]) -> bool:
    return any(isinstance(cell, kinds) for cell in cells)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, full: bool = False
) -> None:
    """Prints rows under a heading; columns whose name ends in `>` are aligned to the right.

    full: keys give no digit away.
    """
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    names = [column.rstrip(">") for column in columns]
    shown = [[_with_whole_key(cell) for cell in row] for row in rows] if full else rows
    widths = _widths(names, shown, console.width)
    if widths is None:
        _print_blocks(console, names, rows)
        return
    right = [column.endswith(">") for column in columns]
    gap = " " * GAP
    console.print(gap.join(_padded(names, widths, right)).rstrip(), style="bold", markup=False)
    console.print("─" * (sum(widths) + GAP * (len(widths) - 1)), markup=False)
    for row in shown:
        cells = [_fitting(cell, width) for cell, width in zip(row, widths, strict=True)]
        _print_cells(console, cells, list(_padded(cells, widths, right)))


def _with_whole_key(cell: Cell) -> Cell:
    if isinstance(cell, PeerKey):
        return cell.whole()
    if isinstance(cell, Key):
        return cell.text or "-" if cell.name is None else f"{cell.name} ({cell.text})"
    return cell


def _padded(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> Iterator[str]:
    from rich.cells import cell_len

    for cell, width, is_right in zip(cells, widths, right, strict=True):
        fill = " " * (width - cell_len(cell))
        yield fill + cell if is_right else cell + fill


def _print_cells(console: Console, cells: Sequence[str], padded: Sequence[str]) -> None:
    from rich.text import Text

    line = Text()
    for number, (cell, shown) in enumerate(zip(cells, padded, strict=True)):
        line.append(" " * GAP if number else "")
        line.append(shown, style=_style(cell))
    line.rstrip()
    console.print(line)


def _lines(cell: Cell, room: int) -> list[str]:
    """All of a cell; a key and its name stand on a line each where one is too short for both."""
    text = _whole(cell)
    if isinstance(cell, PeerKey) and cell.name is not None and cell_width(text) > room:
        return [printable(cell.name), cell.text]
    return [text]


def _print_blocks(console: Console, names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    from rich.text import Text

    width = max(map(len, names))
    for number, row in enumerate(rows):
        if number:
            console.print()
        for name, cell in zip(names, row, strict=True):
            for line, text in enumerate(_lines(cell, console.width - width - GAP)):
                head = f"{'' if line else name:<{width + GAP}}"
                console.print(Text(head).append(text, style=_style(text)))


def _style(cell: str) -> str:
    return "bold red" if cell.startswith(("EXPIRED", "NOT TRUSTED")) else ""
