"""compact: the store's file made small again."""

from __future__ import annotations

import click

from hyperbloom.cli.app import App, pass_app
from hyperbloom.cli.guard import GuardedCommand
from hyperbloom.cli.output import Progress
from hyperbloom.units import format_size

__all__ = ["compact"]


@click.command(cls=GuardedCommand, cure="restore a snapshot", timeout_option=False)
@pass_app
def compact(app: App) -> None:
    """Make the store's file as small as it can be; the node must be stopped.

    A copy without free pages takes the file's place when it is whole, so there must be room for
    both. Exit code 7 while the node runs, or without that room; the file is then as it was.
    """
    from hyperbloom.store.backup.compaction import compact_store

    with Progress("compacting") as progress:
        done = compact_store(
            app.config.store_path,
            lambda now, most: progress.show(f"{format_size(now)} of {format_size(most)}"),
        )
    if app.out.as_json:
        app.out.json({"before": done.before, "after": done.after})
    else:
        app.out.line(f"{format_size(done.before)} before, {format_size(done.after)} now")
