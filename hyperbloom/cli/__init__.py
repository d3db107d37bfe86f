"""The `hyperbloom` command."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The console script; leaves by `SystemExit` with one of `hyperbloom.exit_codes`."""
    from hyperbloom.cli.commands import hyperbloom

    hyperbloom.main(prog_name="hyperbloom")
