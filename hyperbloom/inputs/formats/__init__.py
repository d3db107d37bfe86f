"""Formats of sources: each a function from bytes in slices to values in slices."""

from __future__ import annotations

from hyperbloom.inputs.formats.parsing import Parse, SourceRefused

__all__ = ["FORMATS", "Parse", "SourceRefused", "parser"]

FORMATS = ("lines", "hosts", "csv", "adblock", "json")


def parser(form: str, column: str | None = None, pointer: str | None = None) -> Parse:
    """What reads a format; a csv has a column, json a pointer. Raises `SourceRefused`.

    Only the format that is asked for is loaded: some bring modules that take a while.
    """
    if form == "lines":
        from hyperbloom.inputs.formats.lines import values_of_lines

        return values_of_lines
    if form == "hosts":
        from hyperbloom.inputs.formats.hosts import names_of_hosts

        return names_of_hosts
    if form == "adblock":
        from hyperbloom.inputs.formats.adblock import names_of_rules

        return names_of_rules
    if form == "csv" and column:
        from hyperbloom.inputs.formats.csv_column import column_of

        return column_of(column)
    if form == "json":
        from hyperbloom.inputs.formats.json_pointer import texts_at

        return texts_at(pointer or "")
    raise SourceRefused(f"{form!r} is no format; choose one of {', '.join(FORMATS)}")
