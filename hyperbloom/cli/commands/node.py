"""Commands that make a node, run it, and show its key."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from hyperbloom.cli.app import App, Command, pass_app

__all__ = ["init", "key", "run"]

#: What starts twistd where its script is not beside the interpreter.
_TWISTD = "from twisted.scripts.twistd import run; run()"


@click.command(cls=Command, config_option=False, timeout_option=False)
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--listen",
    multiple=True,
    metavar="ENDPOINT",
    help="Where to listen, such as tcp:4365:interface=127.0.0.1.",
)
@click.option("--advertise", multiple=True, metavar="HOST:PORT", help="Where others reach it.")
@click.option("--discover", is_flag=True, help="Find peers by the Mainline DHT and the network.")
@click.option(
    "--feed",
    default="main",
    show_default=True,
    metavar="NAME",
    help="What its first feed is called.",
)
@click.option("--no-feed", is_flag=True, help="Make no feed, for a node that only joins others'.")
@pass_app
def init(
    app: App,
    folder: Path,
    listen: tuple[str, ...],
    advertise: tuple[str, ...],
    discover: bool,
    feed: str,
    no_feed: bool,
) -> None:
    """Make a node in DIR: its key, a first feed with a key of its own, and a configuration.

    Nothing is overwritten. Keep identity.key and the folder feed-keys safe: they are the node's
    right to write, and to invite to its feeds.
    """
    from hyperbloom.cli.template import make_node
    from hyperbloom.feed_words import check_alias

    try:
        named = None if no_feed else check_alias(feed)
    except ValueError as error:
        raise click.UsageError(f"--feed: {error}") from None
    identity, config = make_node(
        folder, listen=listen, advertise=advertise, discover=discover, feed=named
    )
    if app.out.as_json:
        public = identity.public_key.hex()
        app.out.json({"public": public, "feed": named, "config": str(config)})
    else:
        app.out.line(f"Made {config}" + ("" if named is None else f" and the feed {named}"))
        app.out.line(f"Public key {identity.public_key.hex()}")
        if app.out.is_terminal:
            start = shlex.join(["hyperbloom", "run", "-c", str(config)])
            app.out.line(f"Start it with: {start}")


class RunCommand(Command):
    """`run`, which knows whose an option is that it does not know."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Called by click."""
        given = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            at = next(i for i, text in enumerate(given) if text.startswith(name))
            follows = given[at + 1 : at + 2]
            value = [text for text in follows if not text.startswith("-") and "=" not in given[at]]
            raise click.UsageError(
                f"{name} is no option of this command; what is meant for twistd goes to the end, "
                f"behind two dashes: `-- {shlex.join([given[at], *value])}`",
                ctx,
            ) from None


def _check_roots(path: Path) -> None:
    """Raises `ConfigError` where others than root may write the configuration of a node."""
    from hyperbloom.cli.found_config import user_name, why_not_run
    from hyperbloom.config import ConfigError

    problem = why_not_run(path)
    if problem is None:
        return
    cure = "give file and folder to root alone (chown root, chmod go-w)"
    owner = path.stat().st_uid or path.parent.stat().st_uid
    if owner != 0:
        run = ["sudo", "-u", user_name(owner), "hyperbloom", "run", "-c", str(path)]
        cure = f"start the node as the user that it belongs to (`{shlex.join(run)}`), or {cure}"
    raise ConfigError(f"{problem}, and root would run what it says: {cure}")


@click.command(cls=RunCommand, timeout_option=False)
@click.argument("twistd_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- TWISTD-OPTION…]")
@pass_app
def run(app: App, twistd_options: tuple[str, ...]) -> None:
    """Run the node in the foreground, by twistd, until Ctrl-C.

    What follows -- goes to twistd, such as --logfile. A node runs programs that its configuration
    names, so root runs none whose configuration somebody else may write.
    """
    from hyperbloom.keys import load_key_file

    config = app.config
    if os.geteuid() == 0:
        _check_roots(config.path)
    load_key_file(config.identity)
    script = Path(sys.executable).with_name("twistd")
    twistd = [str(script)] if script.is_file() else ["-c", _TWISTD]
    arguments = ["-n", "--pidfile=", *twistd_options, "hyperbloom", "-c", str(config.path)]
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, *twistd, *arguments])  # noqa: S606


@click.command(cls=Command, timeout_option=False)
@pass_app
def key(app: App) -> None:
    """Print the node's public key.

    Give it to who invites this node. It may be sent in the open: it opens nothing. No node needs to
    run.
    """
    from hyperbloom.keys import load_key_file

    public = load_key_file(app.config.identity).public_key.hex()
    if app.out.as_json:
        app.out.json({"public": public})
    else:
        app.out.line(public)
