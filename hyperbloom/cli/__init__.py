"""The `hyperbloom` command."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """The console script; leaves by `SystemExit` with one of `hyperbloom.exit_codes`."""
    try:
        from hyperbloom.cli.root import hyperbloom

        hyperbloom.main(prog_name="hyperbloom")
    except KeyboardInterrupt:  # before or after the command itself
        raise SystemExit(130) from None
