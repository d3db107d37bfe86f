"""Commands for who looks after a node: its configuration, its store, and the shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from hyperbloom.cli.app import App, Command, exit_with, pass_app
from hyperbloom.cli.following import followed
from hyperbloom.cli.guard import GuardedCommand, bound_reader
from hyperbloom.cli.output import Progress, counted, say
from hyperbloom.exit_codes import ExitCode
from hyperbloom.units import format_size

if TYPE_CHECKING:
    from hyperbloom.client.client import Client

__all__ = ["compact", "completion", "reload", "snapshot", "verify"]

#: What click looks for to complete a command named `hyperbloom`.
COMPLETE_VARIABLE = "_HYPERBLOOM_COMPLETE"


@click.command(cls=Command)
@pass_app
def reload(app: App) -> None:
    """Have the running node read its configuration anew.

    Feeds, limits, the timing of Sync, the log level and advertised addresses change at once; for
    the rest it is said that the node needs a restart. A mistake in the file changes nothing: exit
    code 3. SIGHUP does the same, and tells the log.
    """
    with app.client() as client:
        form = client.reload()
    if app.out.as_json:
        app.out.json(form)
        return
    app.out.line(f"Changed: {', '.join(form['changed']) or 'nothing'}")
    if form["needs_restart"]:
        say(f"a restart is needed for {', '.join(form['needs_restart'])}")


@click.command(cls=GuardedCommand, cure="restore an older snapshot")
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@pass_app
def snapshot(app: App, target: Path) -> None:
    """Copy the store into a new folder OUT, of the running node or of one at rest.

    Exit code 1 if OUT is there already, or the folder it is to be in is not.
    """
    from hyperbloom.client.client import NodeUnreachable

    target = target.absolute()
    with app.progress("copying the store") as progress:
        try:
            shown = _work_shown(progress, "snapshot")
            with app.client(None) as client, followed(app, progress, shown):
                form = client.snapshot(target)
        except NodeUnreachable:
            form = _snapshot_at_rest(app, target, progress)
    if app.out.as_json:
        app.out.json(form)
    else:
        feeds = counted(len(form["feeds"]), "feed")
        values = counted(sum(feed["count"] for feed in form["feeds"]), "value")
        app.out.line(f"{feeds} with {values} copied to {target}")


def _work_shown(progress: Progress, kind: str) -> Callable[[Client], None]:
    """Shows how far the node is with work of this kind."""

    def look(client: Client) -> None:
        for work in client.work():
            if work["kind"] == kind and work["total"]:
                progress.at(work["done"], work["total"], work["unit"], seconds=work["seconds"])

    return look


def _snapshot_at_rest(app: App, target: Path, progress: Progress) -> dict[str, Any]:
    from hyperbloom.api.schemas.flat import snapshot_form
    from hyperbloom.api.snapshot_target import snapshot_target
    from hyperbloom.store import Store

    snapshot_target(str(target))
    store = Store.open(app.config.store_path, create=False)
    try:
        return {"target": str(target), **snapshot_form(store.snapshot(target, _bytes_of(progress)))}
    finally:
        store.close()


def _bytes_of(progress: Progress) -> Callable[[int, int], None]:
    return lambda now, most: progress.at(now, most, "bytes")


def _show_report(app: App, form: Mapping[str, Any]) -> NoReturn:
    if app.out.as_json:
        app.out.json(form)
    else:
        for problem in form["problems"]:
            app.out.line(problem)
        if form["ok"]:
            objects = f" and {counted(form['objects'], 'object')}" if form["objects"] else ""
            app.out.line(f"{counted(form['values'], 'value')}{objects}, nothing is wrong")
    exit_with(ExitCode.OK if form["ok"] else ExitCode.FAILED)


@pass_app
def _verify_died(app: App, sentence: str) -> NoReturn:
    """The child died while it read the store: reports that as damage."""
    _show_report(app, {"ok": False, "problems": [sentence], "values": 0, "objects": 0})


@click.command(cls=GuardedCommand, died=_verify_died)
@click.argument("path", required=False, type=click.Path(path_type=Path))
@pass_app
def verify(app: App, path: Path | None) -> None:
    """Walk the whole store and say what is wrong; exit code 1 if anything is.

    PATH is a snapshot; left out, the node's own store, whether it runs or not.
    """
    with app.progress("verifying") as progress:
        form = _verify(app, path, progress)
    _show_report(app, form)


def _verify(app: App, path: Path | None, progress: Progress) -> Mapping[str, Any]:
    from hyperbloom.client.client import NodeUnreachable

    is_own = path is None
    if path is None:
        try:
            shown = _work_shown(progress, "verify")
            with app.client(None) as client, followed(app, progress, shown):
                return client.verify()
        except NodeUnreachable:
            path = app.config.store_path
    from hyperbloom.api.schemas.flat import flat_json
    from hyperbloom.store.backup.verify import verify_path

    bound_reader(path)
    form: dict[str, Any] = flat_json(verify_path(path, progress.at, is_own=is_own))
    return form


@click.command(cls=GuardedCommand, cure="restore a snapshot", timeout_option=False)
@pass_app
def compact(app: App) -> None:
    """Make the store's file as small as it can be; the node must be stopped.

    A copy without free pages takes the file's place when it is whole, so there must be room for
    both. Exit code 7 while the node runs, or without that room; the file is then as it was.
    """
    from hyperbloom.store.backup.compaction import compact_store

    with app.progress("compacting") as progress:
        done = compact_store(app.config.store_path, _bytes_of(progress))
    if app.out.as_json:
        app.out.json({"before": done.before, "after": done.after})
    else:
        app.out.line(f"{format_size(done.before)} before, {format_size(done.after)} now")


@click.command(cls=Command, config_option=False, timeout_option=False)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_app
def completion(app: App, shell: str) -> None:
    """Print what makes a shell complete this command's words, to be kept or evaluated.

    For bash in ~/.local/share/bash-completion/completions/hyperbloom, for zsh in _hyperbloom on
    its fpath, for fish in ~/.config/fish/completions/hyperbloom.fish.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root()
    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"there is no completion for {shell}")
    script = made(root.command, {}, "hyperbloom", COMPLETE_VARIABLE).source().strip()
    if app.out.as_json:
        app.out.json({"shell": shell, "script": script})
    else:
        for line in script.splitlines():
            app.out.line(line)
