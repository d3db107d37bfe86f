"""What the command says: lines of the help, mistakes in numbers, what was really done."""

from __future__ import annotations

import re

import click
import pytest
from click.testing import CliRunner

from hyperbloom.cli.app import Command
from hyperbloom.cli.parameters import WholeNumber
from hyperbloom.cli.root import hyperbloom
from hyperbloom.keys import Identity

OTHER = Identity(b"o" * 32)
OTHER_KEY = OTHER.public_key.hex()


def every(group=hyperbloom, words=()):
    """Each command and group, and the words that call it."""
    for name, command in group.commands.items():
        yield [*words, name], command
        if isinstance(command, click.Group):
            yield from every(command, [*words, name])


def helps(*words):
    result = CliRunner().invoke(hyperbloom, [*words, "--help"])
    assert result.exit_code == 0
    return result.stdout


# The lines of a group's help


@pytest.mark.parametrize(
    "words", [[], *([*words] for words, one in every() if isinstance(one, click.Group))], ids=str
)
def test_the_help_of_a_group_cuts_no_line(words):
    text = helps(*words)
    assert not re.search(r"\w\.\.\.$", text, re.MULTILINE)
    one_line = " ".join(text.split())
    group = hyperbloom
    for word in words:
        group = group.commands[word]
    for name, command in group.commands.items():
        first = " ".join(command.help.partition("\n\n")[0].split())
        assert f" {name} {first}" in one_line


# Numbers


NUMBERS = [
    (words, option)
    for words, command in every()
    if isinstance(command, Command)
    for option in command.params
    if isinstance(option, click.Option) and isinstance(option.type, WholeNumber)
]


def test_every_whole_number_says_so_in_our_words():
    foreign = [
        (words, one.name)
        for words, command in every()
        for one in command.params
        if type(one.type) in (click.IntRange, click.FloatRange, type(click.INT), type(click.FLOAT))
    ]
    assert foreign == []
    assert len(NUMBERS) >= 10


@pytest.mark.parametrize(("words", "option"), NUMBERS, ids=str)
@pytest.mark.parametrize("given", ["many", "10k", "1.5", "", "-1"])
def test_what_is_no_whole_number_is_told_what_one_is(offline, words, option, given):
    where = option.opts[-1]
    said = offline.refusal(2, *words, where, given)
    least, most = option.type.min, option.type.max
    what = f"from {least} to {most}" if most is not None else f"of {least} or more"
    assert said.startswith(f"Invalid value for '{where}': {given!r} is not a whole number {what}")


# What was done


def test_joining_says_what_it_changed(node, served):
    node.out("feed", "join", OTHER_KEY, "--alias", "o", "--peer", "a.example:1")
    rest = " NOT TRUSTED: this node may not write here; ask a member for an invitation.\n"
    out = node.out("feed", "join", "o", "--retain-values", "100")
    assert out == "Changed o: retain_values is 100 (was 0)." + rest
    out = node.out("feed", "join", "o", "--retain-values", "100")
    assert out == "o stays as it is." + rest
    out = node.out("feed", "join", "o", "--retain-age", "90d", "--peer", "b.example:2")
    assert out == (
        'Changed o: peers is ["a.example:1", "b.example:2"] (was ["a.example:1"]), '
        "retain_age is 7776000.0 (was 0.0)." + rest
    )
