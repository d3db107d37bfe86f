"""Commands about the feeds that this node owns: create, key, adopt.

Keys go between files and never through the node's API: these commands run as the node's user, who
may read its folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hyperbloom.cli.app import App, Command, pass_app
from hyperbloom.cli.commands.trust import expiry_text
from hyperbloom.cli.offers import offer_feeds
from hyperbloom.cli.parameters import EXPIRES, dialect_option
from hyperbloom.units import parse_expiry

if TYPE_CHECKING:
    from hyperbloom.api.schemas.answers import FeedForm
    from hyperbloom.client.client import Client
    from hyperbloom.feed_keys import FeedKeys, HeldKey
    from hyperbloom.keys import Identity

__all__ = ["adopt", "create", "key"]


@click.command("create", cls=Command)
@click.argument("name", metavar="NAME")
@dialect_option
@click.option(
    "--from",
    "source",
    metavar="FEED",
    shell_complete=offer_feeds,
    help="Also copy the values of FEED, such as own, into it.",
)
@pass_app
def create(app: App, name: str, dialect: str | None, source: str | None) -> None:
    """Make a feed called NAME, with a key of its own, of which this node is the owner.

    The key lies in the folder feed-keys beside identity.key; keep a copy (`feed key`). --from
    copies the values of another feed, in their order of arrival; it may be given again, and goes on
    where it was interrupted, or copies what came since.
    """
    with app.client() as client:
        form = _created(client, name, dialect, source)
        copied = _copy(app, client, source, form) if source is not None else None
        if copied is not None:
            form = client.feed(form["key"])
    if app.out.as_json:
        app.out.json({**form, "copied": copied})
        return
    if copied is None:
        app.out.line(f"Made {name}. This node is the owner.")
    else:
        app.out.line(f"{name} has {copied} values of {source}. This node is the owner.")
        _say_what_next(app, name, source)
    app.out.note(f"its key lies in {app.config.feed_keys}; keep a copy: {_key_command(app, name)}")


def _key_command(app: App, name: str) -> str:
    return f"`{app.command('feed', 'key', name, '--to', 'FILE')}`"


def _created(client: Client, name: str, dialect: str | None, source: str | None) -> FeedForm:
    """The new feed, or the one that an earlier call with --from has made."""
    if source is not None:
        client.feed(source)
        for form in client.feeds():
            if form["alias"] == name and form["owner"] and not form["own"]:
                return form
    return client.create_feed(name, dialect=dialect)


def _copy(app: App, client: Client, source: str, form: FeedForm) -> int:
    count = 0
    with app.progress("copying") as progress:
        total = client.count(feed=source)["count"] if progress.is_shown else 0
        for step in client.copy_values(source=source, feed=form["key"]):
            count += step["count"]
            progress.at(count, total)
    return count


def _say_what_next(app: App, name: str, source: str | None) -> None:
    invite = app.command("invite", "KEY", "--feed", name)
    leave = app.command("feed", "leave", str(source))
    app.out.note(
        f"members need new invitations: `{invite}`. What they write to {source} until then comes "
        f"over when this command is given again. When all have joined: `{leave}`"
    )


def _held(app: App, name: str) -> tuple[FeedKeys, HeldKey]:
    """The pair of the feed that `name` means, whether the node runs or not."""
    from hyperbloom.client.requests import NodeUnreachable
    from hyperbloom.feed_keys import FeedKeys

    keys = FeedKeys(app.config.feed_keys)
    keys.load()
    try:
        with app.client() as client:
            form = client.feed(name)
    except NodeUnreachable:
        found = [one for one in keys if name in (one.alias, one.identity.public_key.hex())]
    else:
        if form["own"]:
            raise click.ClickException(
                f"the key of this feed is the node's own: keep a copy of {app.config.identity}"
            )
        found = [one for one in keys if one.identity.public_key.hex() == form["key"]]
    if len(found) != 1:
        raise click.ClickException(f"{app.config.feed_keys} does not hold the key of {name}")
    return keys, found[0]


@click.command("key", cls=Command)
@click.argument("name", metavar="FEED", shell_complete=offer_feeds)
@click.option(
    "--to", "target", required=True, metavar="FILE", type=click.Path(path_type=Path),
    help="A new file for the key.",
)  # fmt: skip
@click.option("--remove", is_flag=True, help="Then take the key off this node.")
@click.option(
    "--expires", type=EXPIRES, metavar="WHEN",
    help="With --remove: how long this node may go on writing as a member (default: 90d).",
)  # fmt: skip
@pass_app
def key(app: App, name: str, target: Path, remove: bool, expires: float | None) -> None:
    """Copy FEED's key, the right of its owner, into a new FILE; nothing prints it.

    With --remove the key then leaves this node, which issues itself a link first and goes on as a
    member. Keep FILE offline: who has it owns the feed. `feed adopt FILE` brings it back, to this
    node or another.
    """
    if expires is not None and not remove:
        raise click.UsageError("--expires goes with --remove")
    _, held = _held(app, name)
    _write_copy(target, held.identity)
    form: dict[str, Any] = {"file": str(target), "removed": remove}
    if remove:
        if expires is None:
            import time

            expires = parse_expiry("90d", now=time.time())
        with app.client() as client:
            answer = client.release_key(feed=held.identity.public_key.hex(), expires=expires)
        form["expires"] = answer["expires"]
    if app.out.as_json:
        app.out.json(form)
        return
    app.out.line(f"The key of {name} is in {target}")
    if remove:
        app.out.line(
            f"It is not on this node any more, which may write: {expiry_text(form['expires'])}"
        )
        adopt_command = app.command("feed", "adopt", "FILE")
        app.out.note(f"to renew that, bring the key back before then: `{adopt_command}`")


def _write_copy(target: Path, identity: Identity) -> None:
    """A key file that holds it; one that does already is left as it is."""
    from hyperbloom.keys import create_key_file, load_key_file

    if os.path.lexists(target) and load_key_file(target) == identity:
        return
    create_key_file(target, identity.seed)
    load_key_file(target)


@click.command("adopt", cls=Command)
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--alias", metavar="NAME", help="A short name, for a feed that is not here yet.")
@pass_app
def adopt(app: App, file: Path, alias: str | None) -> None:
    """Own the feed whose key is in FILE, as `feed key` wrote it; FILE stays where it is.

    Where no node runs, it owns the feed from its next start on.
    """
    from hyperbloom.client.requests import NodeUnreachable
    from hyperbloom.feed_keys import FeedKeys, HeldKey
    from hyperbloom.feed_words import check_alias
    from hyperbloom.keys import load_key_file

    identity = load_key_file(file)
    if identity == load_key_file(app.config.identity):
        raise click.ClickException(f"{file} holds the node's own key; give the file of a feed's")
    try:
        named = check_alias(alias) if alias is not None else HeldKey(identity, file).alias
    except ValueError as error:
        raise click.UsageError(f"--alias: {error}") from None
    keys = FeedKeys(app.config.feed_keys)
    keys.load()
    keys.write(identity, named)
    try:
        with app.client() as client:
            client.read_keys()
            form = client.feed(identity.public_key.hex())
    except NodeUnreachable:
        form = None
    if app.out.as_json:
        app.out.json({"feed": form})
    elif form is None:
        app.out.line("This node owns the feed from its next start on.")
    else:
        app.out.line(f"This node is the owner of {form['alias'] or form['key']}.")
