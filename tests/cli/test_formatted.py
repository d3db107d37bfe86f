"""`get --as`: a feed as the file of another tool."""

from __future__ import annotations

import json

import pytest

from hyperbloom.integrations.settings import FORMAT_NAMES, SET_FORMATS
from hyperbloom.outputs import FORMATS


def test_the_command_knows_every_format():
    assert tuple(FORMATS) == FORMAT_NAMES


@pytest.mark.parametrize("form", FORMAT_NAMES)
def test_a_set_has_the_name_that_is_asked_for(node, form):
    node.out("put", "192.0.2.7", "2001:db8::7", "a.example.com")
    plain, named = node("get", "--as", form), node("get", "--as", form, "--set-name", "ours")
    if form in SET_FORMATS:
        assert "hyperbloom" in plain.stdout
        assert named.stdout == plain.stdout.replace("hyperbloom", "ours")
    else:
        assert (named.exit_code, named.stdout) == (2, "")
        assert "--set-name goes with --as nftables or ipset" in named.stderr


@pytest.mark.parametrize("form", FORMAT_NAMES)
def test_every_format_is_printed(node, form):
    node.out("put", "a.example.com", "192.0.2.7", "--", "\x1b[2J")
    file = node("get", "--as", form)
    assert file.exit_code == 0
    assert ("a.example.com" in file.stdout) == (
        "domain" in getattr(FORMATS[form], "kinds", "domain")
    )
    assert "\x1b" not in file.stdout


def test_what_is_left_out_is_counted_on_standard_error(node):
    node.out("put", "a.example.com", "b.example.com", "192.0.2.7", "192.0.2.8", "localhost")
    file = node("get", "--as", "hosts")
    assert file.stdout == "0.0.0.0 a.example.com\n0.0.0.0 b.example.com\n"
    assert file.stderr == "hyperbloom: left out 3 values: 2 of another kind, 1 reserved\n"
    assert node("get", "--as", "hosts", "--start", "a", "--end", "b").stderr == ""


def test_ranges_and_limits_choose_what_is_printed(node):
    node.out("put", "a.example.com", "b.example.com", "c.example.com")
    assert node.out("get", "--as", "lines", "--prefix", "b") == "b.example.com\n"
    assert node.out("get", "--as", "lines", "--start", "b", "--limit", "1") == "b.example.com\n"
    assert node.out("get", "--as", "json", "--limit", "0") == "[]\n"


def test_many_values_come_through_in_pages(node, served):
    served.call(served.node.own.insert, [b"%06d.example.com" % number for number in range(25_000)])
    names = node.out("get", "--as", "dnsmasq").splitlines()
    assert names == [f"local=/{number:06d}.example.com/" for number in range(25_000)]
    assert len([call for call in served.node.calls if call[0] == "read"]) == 3


def test_what_is_allowed_does_not_come_out(node, tmp_path):
    node.out("put", "a.example.com", "www.b.example.com", "192.0.2.0/30", "c.example.org")
    allow = tmp_path / "allow"
    allow.write_bytes(b"# ours\r\n\r\nexample.com\r\n192.0.2.1\nwhat is this\n")
    file = node("get", "--as", "hosts", "--allow", str(allow))
    assert file.stdout == "0.0.0.0 c.example.org\n"
    remark, counts = file.stderr.splitlines()
    assert remark.startswith(f"hyperbloom: {allow}: 1 line with no domain, address")
    assert counts == "hyperbloom: left out 3 values: 2 allowed, 1 of another kind"
    assert node("get", "--as", "cidr", "--allow", str(allow)).stdout == (
        "192.0.2.0\n192.0.2.2/31\n"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--as", "hosts", "--hex"], "leave out --hex, -0 and --json"),
        (["--as", "hosts", "-0"], "leave out --hex, -0 and --json"),
        (["--as", "hosts", "--json"], "leave out --hex, -0 and --json"),
        (["--allow", "ALLOW"], "--allow goes with --as FORMAT"),
        (["--as", "hosts", "--allow", "MISSING"], "does not exist"),
        (["--as", "windows"], "'windows' is not one of"),
        (["--set-name", "ours"], "--set-name goes with --as nftables or ipset"),
        (["--as", "ipset", "--set-name", "a; b"], "'a; b' is no name of a set: 1 to 24 letters"),
    ],
)
def test_what_does_not_go_together_is_refused(node, tmp_path, arguments, said):
    (tmp_path / "allow").write_text("a.example.com\n")
    paths = {"ALLOW": str(tmp_path / "allow"), "MISSING": str(tmp_path / "missing")}
    done = node("get", *(paths.get(one, one) for one in arguments))
    assert (done.exit_code, done.stdout) == (2, "")
    words = (
        json.loads(done.stderr.splitlines()[-1])["detail"] if "--json" in arguments else done.stderr
    )
    assert said in words


def test_a_file_that_cannot_be_read_is_named(node, tmp_path):
    allow = tmp_path / "allow"
    allow.symlink_to("/proc/self/mem")
    assert f"{allow} cannot be read" in node("get", "--as", "hosts", "--allow", str(allow)).stderr
