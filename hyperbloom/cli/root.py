"""The command line as a whole: the root and every command under it."""

from __future__ import annotations

import click

from hyperbloom import __version__
from hyperbloom.cli.app import Root
from hyperbloom.cli.commands import (
    feeds,
    integrations,
    names,
    node,
    objects,
    owned,
    status,
    trust,
    upkeep,
    values,
)
from hyperbloom.cli.commands.config import config
from hyperbloom.cli.commands.dht import dht
from hyperbloom.cli.commands.discover import discover
from hyperbloom.cli.commands.export import export
from hyperbloom.cli.commands.forgetting import forget, forgotten
from hyperbloom.cli.commands.forgetting import values as values_by
from hyperbloom.cli.commands.renew import renew
from hyperbloom.cli.commands.restore import restore, seed, snapshots
from hyperbloom.cli.commands.synced import wait_synced

__all__ = ["hyperbloom"]


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hyperbloom")
def hyperbloom() -> None:
    """Keep sets of records the same among people who trust each other.

    A node keeps feeds of values. Make one with `init`, start it with `run`, and talk to it with the
    other commands, which find it through its configuration file: -c FILE, before or after the
    command's name, or HYPERBLOOM_CONFIG.
    """


for _owned in (owned.create, owned.key, owned.adopt):
    feeds.feed.add_command(_owned)

trust.trust.add_command(renew)

for _command in (
    node.init,
    node.run,
    node.key,
    values.put,
    values.get,
    values.has,
    values.count,
    values.watch,
    values_by,
    forget,
    forgotten,
    trust.invite,
    trust.join,
    trust.trust,
    names.peer,
    feeds.feed,
    objects.object_,
    status.status,
    status.peers,
    wait_synced,
    integrations.output,
    integrations.input_,
    integrations.hook,
    discover,
    upkeep.snapshot,
    restore,
    seed,
    snapshots,
    upkeep.verify,
    config,
    upkeep.reload,
    upkeep.compact,
    export,
    dht,
    upkeep.completion,
):
    hyperbloom.add_command(_command)
