"""`wait-synced`: wait until peers hold the same values as this node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from hyperbloom.cli.app import DEFAULT_TIMEOUT, App, Command, pass_app
from hyperbloom.cli.following import followed
from hyperbloom.cli.offers import offer_peers
from hyperbloom.cli.parameters import feed_option

if TYPE_CHECKING:
    from hyperbloom.cli.output import Progress
    from hyperbloom.client.client import Client

__all__ = ["wait_synced"]

#: What the node is given beyond --timeout to say that the time is up.
ANSWER_SECONDS = 10.0


@click.command("wait-synced", cls=Command)
@click.argument("peers", metavar="PEER…", nargs=-1, required=True, shell_complete=offer_peers)
@feed_option
@pass_app
def wait_synced(app: App, peers: tuple[str, ...], feed: str | None) -> None:
    """Wait until each PEER holds the same values as this node, for --timeout at the longest.

    PEER is a key, its first 16 or more digits, its name, or an address. Which key is meant is
    settled before the waiting begins: who comes meanwhile is not taken for it. Of a peer that
    announces the extension set-digest, count and digest are compared; of another, Sync alone has to
    show it: a full plan each way that brought nothing new here. Exit code 6 when the time is up, 8
    if there is no such peer.
    """
    from hyperbloom.client.client import Client

    seconds = app.timeout() or DEFAULT_TIMEOUT
    with (
        app.progress("waiting") as progress,
        Client(
            app.config.control_socket,
            timeout=seconds + ANSWER_SECONDS,
            run_command=app.command("run"),
        ) as client,
        followed(app, progress, _values_shown(progress, feed)),
    ):
        form = client.wait_synced(peers, feed=feed, timeout=seconds)
    if app.out.as_json:
        app.out.json(form)
        return
    for peer in form["peers"]:
        how = "digest" if peer["source"] == "digest" else "Sync alone"
        app.out.line(f"{peer['name']} is in sync, by {how}: {app.out.number(form['count'])} values")


def _values_shown(progress: Progress, feed: str | None) -> Callable[[Client], None]:
    """Shows how many of the values are here that the peers have told of."""
    before: int | None = None

    def look(client: Client) -> None:
        nonlocal before
        found = client.feed(feed)
        count = found["count"]
        before = count if before is None else before
        told = [one.get("expected") for one in client.peers() if one["feed"] == found["key"]]
        expected = max((most for most in told if most is not None), default=0)
        if expected > count:
            progress.at(count, expected, before=before)
        else:
            progress.show(f"with {count:,} values")

    return look
