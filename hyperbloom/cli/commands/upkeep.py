"""Commands for who looks after a machine: reload, completion."""

from __future__ import annotations

import click

from hyperbloom.cli.app import App, Command, pass_app
from hyperbloom.cli.output import say

__all__ = ["completion", "reload"]

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
