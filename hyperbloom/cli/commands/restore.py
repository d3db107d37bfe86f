"""`restore` and `seed`: a store from a snapshot, for a node that does not run; `snapshots`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hyperbloom.cli.app import App, Command, pass_app
from hyperbloom.cli.guard import GuardedCommand, bound_reader
from hyperbloom.cli.output import say
from hyperbloom.cli.parameters import WholeNumber
from hyperbloom.cli.tables import Key
from hyperbloom.units import format_duration, format_size

if TYPE_CHECKING:
    from hyperbloom.store.backup.snapshot_folder import KeptSnapshot
    from hyperbloom.store.records import SnapshotInfo

__all__ = ["restore", "seed", "snapshots"]

_SNAPSHOT = click.argument("snapshot", metavar="SNAPSHOT", type=click.Path(path_type=Path))
_CURE = (
    "use another snapshot; if it is the store to be replaced that is damaged, move that away first"
)
_REPLACE = click.option(
    "--replace", is_flag=True, help="Replace the store that is there; it is kept as STORE.replaced."
)


@click.command(cls=GuardedCommand, cure=_CURE, timeout_option=False)
@_SNAPSHOT
@click.option(
    "--to",
    "target",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Make the store DIR, for no node in particular; else the one of the configured node.",
)
@click.option("--verify", is_flag=True, hidden=True)
@_REPLACE
@click.option("--as-seed", is_flag=True, help="Take another node's snapshot, as `seed` does.")
@pass_app
def restore(
    app: App, snapshot: Path, target: Path | None, verify: bool, replace: bool, as_seed: bool
) -> None:
    """Make the store of a node that does not run from a SNAPSHOT of it, whole or not at all.

    Its records are copied one by one, all of the new store is walked before it is put in place, and
    counts and digests are compared with what the snapshot says of itself. Exit code 1 if there is a
    store already, or if the snapshot is of another node; 7 if the node runs, or the snapshot is
    damaged.
    """
    from hyperbloom.replication.feed.snapshot_import import settings_of
    from hyperbloom.store.restoring.restore import restore_store

    if verify:
        say("every restore is verified; --verify can be left out")
    if as_seed:
        _seed(app, snapshot, target or app.config.store_path, (), verify=True, replace=replace)
        return
    bound_reader(snapshot)
    node_key = _node_key(app) if target is None else None
    store = app.config.store_path if target is None else target
    with app.progress("restoring") as progress:
        info = restore_store(
            snapshot,
            store,
            node_key=node_key,
            replace=replace,
            check=settings_of,
            progress=progress.at,
            warn=say,
        )
    _tell(app, info, store)


@click.command(cls=GuardedCommand, cure=_CURE, timeout_option=False)
@_SNAPSHOT
@click.option(
    "--feed",
    "feeds",
    metavar="FEED",
    multiple=True,
    help="Take this feed (key or alias in the snapshot); may be repeated. Else all with values.",
)
@click.option("--verify", is_flag=True, help="Walk all of the new store before it is put in place.")
@_REPLACE
@pass_app
def seed(app: App, snapshot: Path, feeds: tuple[str, ...], verify: bool, replace: bool) -> None:
    """Begin a new node with the values and links of another node's SNAPSHOT.

    The node keeps its own key, and gets the right to write by an invitation as usual; then it syncs
    what came since. Exit codes as for `restore`; 8 if the snapshot has no such feed.
    """
    _seed(app, snapshot, app.config.store_path, feeds, verify=verify, replace=replace)


def _seed(
    app: App, snapshot: Path, store: Path, feeds: tuple[str, ...], *, verify: bool, replace: bool
) -> None:
    from hyperbloom.replication.feed.snapshot_import import taken_of
    from hyperbloom.store.restoring.seed import feed_key_in, seed_store

    bound_reader(snapshot)
    keys = [feed_key_in(snapshot, name) for name in feeds] or None
    with app.progress("seeding") as progress:
        info = seed_store(
            snapshot,
            store,
            feeds=keys,
            now=time.time(),
            replace=replace,
            verify=verify,
            take=taken_of,
            progress=progress.at,
            warn=say,
        )
    _tell(app, info, store)


def _node_key(app: App) -> bytes:
    from hyperbloom.keys import load_key_file

    return load_key_file(app.config.identity).public_key


def _tell(app: App, info: SnapshotInfo, store: Path) -> None:
    from hyperbloom.api.schemas.flat import snapshot_form

    if app.out.as_json:
        app.out.json({"store": str(store), **snapshot_form(info)})
        return
    values = sum(feed.count for feed in info.feeds)
    feeds = "1 feed" if len(info.feeds) == 1 else f"{len(info.feeds)} feeds"
    app.out.line(f"{feeds} with {app.out.number(values)} values in {store}; all digests are right")


@click.command(cls=Command, timeout_option=False)
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--prune",
    type=WholeNumber(min=1),
    metavar="N",
    help="Remove all but the newest N snapshots of each node.",
)
@pass_app
def snapshots(app: App, folder: Path, prune: int | None) -> None:
    """List the snapshots in FOLDER, newest first; with --prune those that were removed.

    Whatever in FOLDER is no whole snapshot is passed over and left alone.
    """
    from hyperbloom.api.schemas.flat import snapshot_form
    from hyperbloom.store.backup.snapshot_folder import list_snapshots, prune_snapshots

    found = list_snapshots(folder) if prune is None else prune_snapshots(folder, keep=prune)
    if app.out.as_json:
        name = "snapshots" if prune is None else "removed"
        app.out.json({name: [{**snapshot_form(one.info), **_on_disk(one)} for one in found]})
        return
    rows = [
        (
            one.path.name,
            f"{format_duration(max(0.0, time.time() - one.info.taken_at / 1e6))} ago",
            Key(one.info.node_key.hex()) if one.info.node_key is not None else "-",
            app.out.number(sum(feed.count for feed in one.info.feeds)),
            format_size(one.size) if app.out.is_terminal else str(one.size),
        )
        for one in found
    ]
    empty = "No snapshots." if prune is None else "Nothing was removed."
    app.out.table(("snapshot", "taken", "node", "values>", "size>"), rows, empty=empty)


def _on_disk(one: KeptSnapshot) -> dict[str, object]:
    return {"path": str(one.path), "size": one.size}
