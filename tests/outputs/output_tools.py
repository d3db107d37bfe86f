"""The tools that read the formats, each as Debian packs it; and what each holds after reading."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from debian_packages import CACHE, environment, unpacked

PACKAGES = (
    "bind9-utils",
    "dnsmasq-base",
    "ipset",
    "nftables",
    "postfix",
    "unbound",
)
TOOL_SECONDS = 200
ZONE = "rpz.example"

#: An unbound that is started by anybody, in a folder of its own.
UNBOUND_SERVER = """\
server:
  directory: "."
  chroot: ""
  username: ""
  pidfile: ""
  use-syslog: no
"""
_POSTFIX = """\
command_directory = /usr/sbin
compatibility_level = 3.6
mail_owner = daemon
myhostname = mail.example.com
queue_directory = {folder}
setgid_group = mail
"""


class RefusedError(Exception):
    """A tool did not take a file; the message is what it said."""


class OutputTools:
    """Runs the tools on files; `folder` is for what they need."""

    def __init__(self, folder: Path) -> None:
        self._root = unpacked(PACKAGES, CACHE / "output-tools")
        self.environment = environment(self._root)
        self.folder = folder

    def command(self, name: str, *arguments: str) -> list[str]:
        """A command, with the unpacked program of its name or else the machine's."""
        program = next(self._root.glob(f"usr/*bin/{name}"), name)
        return [str(program), *arguments]

    def run(self, *command: str, stdin: bytes | None = None) -> bytes:
        """What a program prints on both outputs; raises RefusedError if it fails."""
        try:
            done = subprocess.run(
                self.command(*command),
                env=self.environment,
                cwd=self.folder,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=TOOL_SECONDS,
                check=False,
            )
        except FileNotFoundError as error:
            raise RefusedError(f"{command[0]} is missing") from error
        if done.returncode:
            raise RefusedError(f"{command[0]}: {done.stdout[-500:].decode(errors='replace')}")
        return done.stdout

    def shell(self, *namespaces: str, script: str, stdin: bytes = b"") -> bytes:
        """Runs a script in namespaces of its own, as root of them."""
        names = ":".join([*(str(path) for path in self._root.glob("usr/*bin")), "$PATH"])
        script = f"PATH={names}; {script}"
        # Root of the machine stays it: nft may send much at once then.
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        return self.run("unshare", *user, *namespaces, "sh", "-ec", script, stdin=stdin)

    def needs(self, namespace: str, script: str = "true") -> None:
        """Skips the test where this kernel has no such namespace, or does not know the script."""
        try:
            self.shell(namespace, script=script)
        except RefusedError as reason:
            pytest.skip(f"not by this kernel: {reason}")

    def hosts(self, path: Path) -> list[str]:
        """The names of a hosts file, by the C library."""
        script = f"mount --bind {path} /etc/hosts; getent -s hosts:files hosts"
        lines = self.shell("--mount", script=script).decode().splitlines()
        assert all(line.split()[0] == "0.0.0.0" for line in lines)
        return [line.split(None, 1)[1] for line in lines]

    def dnsmasq(self, path: Path) -> None:
        """Checks a configuration file."""
        assert b"syntax check OK" in self.run("dnsmasq", "--test", "-C", str(path))

    def unbound(self, path: Path) -> None:
        """Checks a configuration that includes a file."""
        config = self.folder / "unbound.conf"
        config.write_text(f'{UNBOUND_SERVER}include: "{path}"\n')
        assert b"no errors" in self.run("unbound-checkconf", str(config))

    def rpz(self, path: Path) -> dict[str, str]:
        """Owners in a zone and what their CNAME leads to."""
        text = self.run("named-checkzone", "-D", "-i", "none", ZONE, str(path)).decode()
        found = re.findall(rf"^(\S+)\.{re.escape(ZONE)}\.\s+300 IN\s+CNAME\s+(\S+)$", text, re.M)
        assert len(found) == text.count("CNAME"), text[-500:]
        return dict(found)

    def nftables(self, path: Path) -> dict[str, list]:
        """The elements of each set, after the check and after the kernel has taken the file."""
        script = f"nft -c -f {path}; nft -f {path}; nft -f {path}; nft -j list ruleset"
        parts = json.loads(self.shell("--net", script=script))["nftables"]
        return {one["set"]["name"]: one["set"].get("elem", []) for one in parts if "set" in one}

    def ipset(self, path: Path) -> dict[str, set[str]]:
        """The elements of each set, after the kernel has taken the file twice."""
        script = f"ipset restore <{path}; ipset restore <{path}; ipset save"
        found: dict[str, set[str]] = {}
        for line in self.shell("--net", script=script).decode().splitlines():
            word, name, *rest = line.split()
            if word == "create":
                found[name] = set()
            else:
                found[name].add(rest[0])
        return found

    def postfix(self, path: Path) -> dict[str, str]:
        """The keys of a table and what each leads to."""
        config = self.folder / "postfix"
        config.mkdir(exist_ok=True)
        main = config / "main.cf"
        main.write_text(_POSTFIX.format(folder=config))
        # Postfix waits two seconds where somebody may still write its configuration.
        os.utime(main, (1_000_000_000, 1_000_000_000))
        said = self.run("postmap", "-c", str(config), f"hash:{path}").decode()
        # An address of IPv6 may end in a colon, which postmap remarks on and takes.
        remarks = ("duplicate entry", 'record is in "key: value" format')
        others = [line for line in said.splitlines() if not any(one in line for one in remarks)]
        assert others == [], others[:3]
        rows = self.run("postmap", "-c", str(config), "-s", f"hash:{path}").decode()
        return dict(row.split("\t") for row in rows.splitlines())
