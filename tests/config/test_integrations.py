"""`[[outputs]]`, `[[inputs]]` and `[[hooks]]`, read and refused."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from hyperbloom.cli.template import config_text
from hyperbloom.config import ConfigError, parse_config
from hyperbloom.integrations.limits import MAX_INTEGRATIONS
from hyperbloom.integrations.settings import HookSettings, InputSettings, OutputSettings

HERE = Path("/etc/hyperbloom/hyperbloom.toml")

OUTPUT = """
[[outputs]]
name = "resolver"
feed = "names"
format = "unbound"
path = "out/blocked.conf"
"""
INPUT = '[[inputs]]\nname = "list"\nurl = "https://lists.example/all.txt"\n'
HOOK = '[[hooks]]\nname = "bell"\ncommand = ["/usr/bin/logger", "-t", "bell"]\n'


def test_what_is_left_out_is_as_documented() -> None:
    found = parse_config(OUTPUT + INPUT + HOOK, path=HERE).integrations
    assert found.outputs == (
        OutputSettings(
            name="resolver",
            feed="names",
            format="unbound",
            path=Path("/etc/hyperbloom/out/blocked.conf"),
        ),
    )
    assert found.inputs == (InputSettings(name="list", url="https://lists.example/all.txt"),)
    assert found.hooks == (HookSettings(name="bell", command=("/usr/bin/logger", "-t", "bell")),)


def test_everything_can_be_said() -> None:
    text = (
        OUTPUT.replace("unbound", "ipset")
        + 'prefix_hex = "ff00"\nstart = "a"\nend = "b"\nmode = "0600"\nset_name = "ours"\n'
        + 'allow = "ours.txt"\ncommand = ["/bin/true"]\ndelay = "5s"\ntimeout = "2m"\n'
        + '[[inputs]]\nname = "a"\npath = "b.csv"\nformat = "csv"\ncolumn = "name"\n'
        + 'every = "1h"\nmax_shrink = 0.5\nmax_bytes = 10\n'
        + '[[inputs]]\nname = "b"\npath = "b.json"\nformat = "json"\npointer = "/a/0"\n'
        + '[[hooks]]\nname = "a"\nurl = "http://127.0.0.1:80/x"\nsecret = "key"\n'
        + 'since = "start"\nbatch = 10\n'
    )
    found = parse_config(text, path=HERE).integrations
    output = found.outputs[0]
    assert (output.prefix, output.start, output.end) == (b"\xff\x00", b"a", b"b")
    assert (output.mode, output.delay, output.timeout) == (0o600, 5.0, 120.0)
    assert output.allow == Path("/etc/hyperbloom/ours.txt")
    assert found.inputs[0].every == 3_600.0
    assert found.inputs[1].pointer == "/a/0"
    assert found.hooks[0].secret == Path("/etc/hyperbloom/key")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[outputs]\nname = "a"', "outputs must be written as [[outputs]]"),
        (
            OUTPUT.replace("unbound", "unbond"),
            "'unbond' is not a known format; did you mean",
        ),
        (OUTPUT.replace("path =", "pathe ="), "[[outputs]] 1 pathe: there is no such key"),
        (OUTPUT.replace('name = "resolver"', ""), "[[outputs]] 1 name: is missing"),
        (OUTPUT.replace("resolver", "a b"), "'a b' is no name"),
        (OUTPUT + OUTPUT, "[[outputs]] 2 name: 'resolver' names two of them"),
        (OUTPUT + 'mode = "rw"', "'rw' is no mode of a file"),
        (OUTPUT + 'mode = "0755"', "'0755' is no mode of a file"),
        (OUTPUT + 'mode = "0044"', "'0044' is no mode of a file"),
        (OUTPUT.replace("unbound", "ipset") + 'set_name = "a; flush"', "is no name of a set"),
        (OUTPUT + 'set_name = "ours"', 'goes with format = "nftables" or "ipset" alone'),
        (OUTPUT + 'command = "sh -c true"', "command: must be a list"),
        (OUTPUT + "command = []", "command: must name a program"),
        (OUTPUT + 'command = [""]', "the first text is the program"),
        (OUTPUT + 'allow = "a"\nallow_feed = "b"', "give allow or allow_feed, not both"),
        (OUTPUT + 'start = "b"\nend = "a"', "end: must be greater than the start"),
        (INPUT.replace("https:", "http:"), "url: must begin with https://"),
        (INPUT.replace("https://", "https://me:pw@"), "no user name and no password"),
        (INPUT.replace("https://lists.example/all.txt", "https://"), "this is no URL"),
        (INPUT + 'path = "a"', "give either path or url"),
        (INPUT + 'column = "a"', 'column: goes with format = "csv" alone'),
        (INPUT + 'format = "csv"', "column: is missing"),
        (INPUT + 'format = "json"\npointer = "a"', "is no JSON pointer"),
        (INPUT + "max_shrink = 2", "max_shrink: must be at most 1"),
        ('[[hooks]]\nname = "a"', "give either command or url"),
        (HOOK + 'url = "https://a.example"', "give either command or url"),
        (HOOK + 'secret = "a"', "secret: goes with url alone"),
        ('[[hooks]]\nname = "a"\nurl = "http://a.example"', "or http:// for an address of this"),
        (HOOK + "batch = 0", "batch: must be at least 1"),
    ],
)
def test_what_is_wrong_is_said(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(text, path=HERE)
    assert sentence in str(raised.value)


def test_the_examples_of_the_template_can_be_uncommented() -> None:
    lines, in_example = [], False
    for line in config_text().splitlines():
        in_example = line.startswith(("# [[outputs]]", "# [[inputs]]", "# [[hooks]]")) or (
            in_example and line.startswith("# ")
        )
        lines.append(line.removeprefix("# ") if in_example else line)
    found = parse_config("\n".join(lines), path=HERE).integrations
    assert [(type(one), one.name) for one in found] == [
        (OutputSettings, "resolver"),
        (InputSettings, "their-list"),
        (HookSettings, "bell"),
    ]


def test_one_beyond_the_most_is_refused() -> None:
    def many(count: int) -> str:
        return "".join(HOOK.replace("bell", f"bell{number}") for number in range(count))

    assert len(parse_config(many(MAX_INTEGRATIONS), path=HERE).integrations.hooks) == 100
    with pytest.raises(ConfigError, match="at most 100 of them together"):
        parse_config(many(MAX_INTEGRATIONS + 1), path=HERE)


@pytest.mark.parametrize(
    "path",
    [
        "store/data.mdb",
        "store/x/y",
        "store",
        "identity.key",
        "feed-keys/names.key",
        "control.sock",
        "last-export",
        "hyperbloom.toml",
        "out/../store/lock.mdb",
        "ours",
        "theirs",
    ],
)
def test_an_output_never_replaces_what_the_node_uses(path: str) -> None:
    text = f'[[outputs]]\nname = "a"\nformat = "hosts"\npath = "{path}"\nallow = "ours"\n'
    text += '[[inputs]]\nname = "a"\npath = "theirs"\n'
    with pytest.raises(ConfigError, match=r"\[\[outputs\]\] 1 path: .*would replace"):
        parse_config(text, path=HERE)
    moved = text.replace(f'path = "{path}"', 'path = "store-of-others"', 1)
    assert parse_config(moved, path=HERE).integrations.outputs


def test_the_example_of_an_output_is_taken() -> None:
    page = (Path(__file__).parents[2] / "docs" / "outputs.md").read_text()
    _, _, section = page.partition("## Files that the node keeps")
    example = section[section.index("    [[outputs]]") :].partition("\n\n")[0]
    (output,) = parse_config(textwrap.dedent(example), path=HERE).integrations.outputs
    assert output.command[0] == "/usr/bin/logger"


def test_no_two_outputs_are_the_same_file(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    one = '[[outputs]]\nname = "{}"\nformat = "hosts"\npath = "{}/list"\n'
    for first, second in (("real", "real"), ("real", "link"), ("real", "real/../link")):
        text = one.format("a", first) + one.format("b", second)
        with pytest.raises(ConfigError, match=r"\[\[outputs\]\] 2 path: is that of 'a', too"):
            parse_config(text, path=tmp_path / "hyperbloom.toml")
    assert parse_config(one.format("a", "real") + one.format("b", "."), path=tmp_path / "x.toml")
