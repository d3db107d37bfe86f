"""Each rule of the house finds the breach it is for, and lets the right thing pass."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import file_rules
import import_rules
import pytest
import shape_rules
from import_rules import Room
from source_tree import Module, is_python, project_files, read_module

Rule = Callable[[list[Module]], list[str]]


def module(name: str, source: str, *, is_package: bool = False) -> Module:
    return Module(name=name, source=textwrap.dedent(source), is_package=is_package)


def breaches(rule: Rule, name: str, source: str) -> list[str]:
    return rule([module(name, source)])


class TestImports:
    @pytest.mark.parametrize(
        ("name", "source"),
        [
            ("hyperbloom.trust.chain", "from hyperbloom.wire import Session"),
            ("hyperbloom.trust.chain", "import hyperbloom.store"),
            ("hyperbloom.trust.chain", "from ..wire.session import Session"),
            ("hyperbloom.trust.chain", "from .. import wire"),
            ("hyperbloom.keys", "from . import bloom"),
            ("hyperbloom.wire.session", "def late():\n    from hyperbloom.replication import x"),
            (
                "hyperbloom.wire.session",
                "if TYPE_CHECKING:\n    import hyperbloom.service",
            ),
            ("hyperbloom.wire.session", "import importlib as i\ni.import_module('hyperbloom.api')"),
            ("hyperbloom.replication.node", "from hyperbloom.discovery import dht"),
            ("hyperbloom.replication.node", "from hyperbloom import service"),
            ("hyperbloom.objects.pool", "import hyperbloom.replication.feed.feed as feed"),
            ("hyperbloom.store", "from hyperbloom.trust import Chain"),
            ("hyperbloom.export.source", "from hyperbloom.wire import messages"),
        ],
    )
    def test_an_upward_import(self, name: str, source: str) -> None:
        assert len(breaches(import_rules.upward_imports, name, source)) == 1

    @pytest.mark.parametrize(
        ("name", "source"),
        [
            ("hyperbloom.trust.chain", "from hyperbloom.keys import Identity"),
            ("hyperbloom.trust.chain", "from .link import parse_link"),
            ("hyperbloom.api.endpoints.node", "from hyperbloom import __version__"),
            ("hyperbloom.wire.session", "import importlib as i\ni.import_module('json')"),
        ],
    )
    def test_a_downward_import_passes(self, name: str, source: str) -> None:
        assert breaches(import_rules.upward_imports, name, source) == []

    def test_relative_imports_of_a_package_start_in_it(self) -> None:
        package = module("hyperbloom.trust", "from .chain import Chain", is_package=True)
        assert [reach.name for reach in package.imports] == ["hyperbloom.trust.chain.Chain"]
        above = module("hyperbloom.trust", "from ..wire import x", is_package=True)
        assert len(import_rules.upward_imports([above])) == 1

    def test_a_computed_import(self) -> None:
        source = "import importlib\nimportlib.import_module(name)"
        assert breaches(import_rules.foreign_imports, "hyperbloom.trust.x", source)

    @pytest.mark.parametrize(
        ("name", "source"),
        [
            ("hyperbloom.wire.session", "import twisted.internet.defer"),
            ("hyperbloom.replication.feed.feed", "import lmdb"),
            ("hyperbloom.cli.commands.values", "from lmdb import Environment"),
            ("hyperbloom.bloom", "import pyspark"),
            ("hyperbloom.store.writer", "from twisted.logger import Logger"),
        ],
    )
    def test_a_foreign_package(self, name: str, source: str) -> None:
        assert len(breaches(import_rules.foreign_imports, name, source)) == 1

    def test_another_rooms_private_parts(self) -> None:
        rule = import_rules.private_imports
        assert breaches(rule, "hyperbloom.store.x", "from hyperbloom.wire._pb2 import y")
        assert breaches(rule, "hyperbloom.store.x", "from hyperbloom.keys import _secret")
        assert not breaches(rule, "hyperbloom.wire.x", "from hyperbloom.wire._pb2 import y")
        assert not breaches(rule, "hyperbloom.api.x", "from hyperbloom import __version__")

    def test_a_room_that_is_not_in_the_plan(self) -> None:
        assert breaches(import_rules.unplanned_rooms, "hyperbloom.attic", "x = 1")
        assert not breaches(import_rules.unplanned_rooms, "hyperbloom", "x = 1")

    @pytest.mark.parametrize(
        "back",
        [
            "from hyperbloom.wire.session import Session",
            "from hyperbloom.wire import session",
            "from .session import Session",
            "if TYPE_CHECKING:\n    from hyperbloom.wire.session import Session",
            "def late():\n    import hyperbloom.wire.session",
        ],
    )
    def test_a_circle_of_modules(self, back: str) -> None:
        session = module("hyperbloom.wire.session", "from hyperbloom.wire.states import State")
        circle = import_rules.import_circles([session, module("hyperbloom.wire.states", back)])
        assert len(circle) == 1
        assert "session imports states (hyperbloom.wire.session:1)" in circle[0]
        assert not import_rules.import_circles([session, module("hyperbloom.wire.states", "")])

    def test_a_circle_of_folders_without_one_of_modules(self) -> None:
        assert import_rules.import_circles(
            [
                module("hyperbloom.store.a.one", "from hyperbloom.store.b.one import x"),
                module("hyperbloom.store.b.one", ""),
                module("hyperbloom.store.b.two", "from hyperbloom.store.a.two import x"),
                module("hyperbloom.store.a.two", ""),
            ]
        )

    def test_a_facade_that_its_own_module_imports(self) -> None:
        facade = module("hyperbloom.wire", "from hyperbloom.wire.a import x", is_package=True)
        assert import_rules.import_circles(
            [facade, module("hyperbloom.wire.a", "from hyperbloom.wire import y")]
        )

    def test_a_circle_in_the_plan(self) -> None:
        assert import_rules.circles({"a": Room(knows=("b",)), "b": Room(knows=("a",))})
        assert import_rules.circles({"a": Room(knows=("a",))})
        assert import_rules.circles({"a": Room(knows=("nowhere",))})
        assert not import_rules.circles({"a": Room(), "b": Room(knows=("a",))})


class TestPureCore:
    @pytest.mark.parametrize(
        "source",
        [
            "import time",
            "from time import monotonic",
            "import socket",
            "import logging",
            "import random",
            "import secrets",
            "import threading",
            "import asyncio",
            "import os\nnonce = os.urandom(24)",
            "from os import urandom",
            "from os import urandom as chance\nnonce = chance(24)",
            "import datetime\nnow = datetime.datetime.now()",
            "import datetime as dt\nnow = dt.datetime.now(dt.UTC)",
            "from datetime import datetime as Clock\nnow = Clock.utcnow()",
            "from datetime import date\ntoday = date.today()",
            "import numpy as np\nchance = np.random.default_rng()",
            "from nacl.utils import random",
            "from nacl.signing import SigningKey\nkey = SigningKey.generate()",
            "from nacl import bindings\nkey = bindings.randombytes(32)",
            "def read(path):\n    with open(path) as file:\n        return file.read()",
            "print('here')",
            "import pathlib",
        ],
    )
    def test_a_clock_chance_or_a_file(self, source: str) -> None:
        assert breaches(import_rules.impure_core, "hyperbloom.wire.session", source)

    def test_elsewhere_it_passes(self) -> None:
        assert not breaches(import_rules.impure_core, "hyperbloom.service", "import time")

    def test_a_core_package_of_another_room(self) -> None:
        rule = import_rules.impure_core
        for source in ("import socket", "from twisted.internet import defer", "import time"):
            assert breaches(rule, "hyperbloom.discovery.dht.machine", source)
            assert not breaches(rule, "hyperbloom.discovery.dht_node", source)

    def test_keys_may_read_files_but_not_the_clock(self) -> None:
        rule = import_rules.impure_core
        assert not breaches(rule, "hyperbloom.keys", "import os\nos.open('x', os.O_RDONLY)")
        assert breaches(rule, "hyperbloom.keys", "import os\nos.urandom(32)")

    def test_times_as_arguments_pass(self) -> None:
        source = """
            import datetime as dt
            def age(now: float, then: dt.datetime) -> float:
                return now - then.timestamp()
        """
        assert not breaches(import_rules.impure_core, "hyperbloom.trust.chain", source)

    @pytest.mark.parametrize("room", ["store", "export"])
    def test_the_network_in_store_and_export(self, room: str) -> None:
        rule = import_rules.network_in
        assert breaches(rule, f"hyperbloom.{room}.x", "from urllib.request import urlopen")
        assert breaches(rule, f"hyperbloom.{room}.x", "import socket")
        assert not breaches(rule, f"hyperbloom.{room}.x", "import threading")
        assert not breaches(rule, f"hyperbloom.{room}.x", "from urllib.parse import quote")


class TestShape:
    def test_a_long_module(self) -> None:
        assert not breaches(shape_rules.long_modules, "hyperbloom.x", "x = 1\n" * 700)
        assert breaches(shape_rules.long_modules, "hyperbloom.x", "x = 1\n" * 701)

    @pytest.mark.parametrize("head", ["def f():", "async def f():", "class C:\n  def f(self):"])
    def test_a_long_function(self, head: str) -> None:
        def function(lines: int) -> str:
            return head + "\n" + "    x = 1\n" * (lines - 1)

        assert not breaches(shape_rules.long_functions, "hyperbloom.x", function(80))
        assert breaches(shape_rules.long_functions, "hyperbloom.x", function(81))

    @pytest.mark.parametrize(
        ("name", "source"),
        [
            ("hyperbloom.utils", ""),
            ("hyperbloom.wire.frame_helpers", ""),
            ("hyperbloom.peer_manager.x", ""),
            ("tests.x", "class PeerManager: pass"),
            ("tests.x", "class HTTPHandler: pass"),
        ],
    )
    def test_a_name_that_says_nothing(self, name: str, source: str) -> None:
        assert len(breaches(shape_rules.empty_names, name, source)) == 1

    def test_a_name_that_holds_such_a_word_by_chance_passes(self) -> None:
        assert not breaches(shape_rules.empty_names, "hyperbloom.utility", "class Futile: pass")

    @pytest.mark.parametrize(
        "source",
        [
            "def f(): pass",
            "__all__ = ['gone']",
            "__all__ = names()",
            "__all__ = ['f', 'gone']\ndef f(): pass",
        ],
    )
    def test_a_public_module_without_a_true_list_of_names(self, source: str) -> None:
        assert len(breaches(shape_rules.unlisted_names, "hyperbloom.x", source)) == 1

    @pytest.mark.parametrize(
        ("name", "source"),
        [
            ("hyperbloom.x", "from a import b as c\nX: int = 1\ny, z = 1, 2\n"
                             "if X:\n    class K: pass\n__all__ = ['c', 'X', 'y', 'z', 'K']"),
            ("hyperbloom._x", "def f(): pass"),
            ("hyperbloom.x", '"""Only a text."""\nfrom __future__ import annotations'),
        ],
    )  # fmt: skip
    def test_a_true_list_of_names_passes(self, name: str, source: str) -> None:
        assert breaches(shape_rules.unlisted_names, name, source) == []

    @pytest.mark.parametrize(
        "mark",
        ["# TO" + "DO: later", "raise NotImplemented" + "Error", "x = y  # type: " + "ignore"],
    )
    def test_what_is_left_open(self, mark: str) -> None:
        found = breaches(shape_rules.left_open, "hyperbloom.x", f"x = 1\n{mark}\n")
        assert len(found) == 1
        assert found[0].startswith("hyperbloom.x:2:")

    def test_an_ignored_type_with_its_reason_passes(self) -> None:
        source = "x = y  # type: " + "ignore[misc]\n"
        assert not breaches(shape_rules.left_open, "hyperbloom.x", source)

    def test_a_struct_without_byte_order(self) -> None:
        rule = shape_rules.native_structs
        assert breaches(rule, "hyperbloom.x", "import struct\nstruct.unpack('H', data)")
        assert breaches(rule, "hyperbloom.x", "from struct import Struct\nS = Struct('=H')")
        assert not breaches(rule, "hyperbloom.x", "import struct\nstruct.unpack('>H', data)")

    @pytest.mark.parametrize("missing", ["frozen", "slots", "kw_only"])
    def test_a_message_that_can_change(self, missing: str) -> None:
        options = {"frozen", "slots", "kw_only"} - {missing}
        given = ", ".join(f"{option}=True" for option in sorted(options))
        source = f"from dataclasses import dataclass\n@dataclass({given})\nclass Open: pass"
        rule = shape_rules.loose_messages
        assert breaches(rule, "hyperbloom.wire.messages", source) == [
            f"hyperbloom.wire.messages:3: Open is not {missing}"
        ]
        assert not breaches(rule, "hyperbloom.wire.session", source)

    def test_a_bare_dataclass_is_loose(self) -> None:
        source = "import dataclasses\n@dataclasses.dataclass\nclass Open: pass"
        assert len(breaches(shape_rules.loose_messages, "hyperbloom.wire.events", source)) == 3

    @pytest.mark.parametrize(
        ("bases", "is_loose"),
        [
            ("Exception", True),
            ("ValueError, OSError", True),
            ("HyperbloomError", False),
            ("StoreError, ValueError", False),
            ("Room", False),
        ],
    )
    def test_an_error_that_the_table_of_errors_does_not_know(
        self, bases: str, is_loose: bool
    ) -> None:
        found = breaches(shape_rules.loose_errors, "hyperbloom.store.x", f"class Lost({bases}): 1")
        assert bool(found) is is_loose


class TestFiles:
    @pytest.mark.parametrize("folder", file_rules.MACHINE_FOLDERS)
    def test_a_machines_path(self, folder: str) -> None:
        line = f"see\ncd /{folder}/somewhere\n"
        assert file_rules.machine_paths({"docs/x.md": line}) == [f"docs/x.md:2: /{folder}/s"]
        assert not file_rules.machine_paths({"tests/x.py": line})
        assert not file_rules.machine_paths({"x": f"a/{folder}/somewhere $HOME/{folder}/x"[:20]})

    @pytest.mark.parametrize("host", file_rules.REGISTRY_HOSTS)
    def test_a_registrys_host(self, host: str) -> None:
        assert file_rules.registry_addresses({"x": f"https://{host}/simple"})

    @pytest.mark.parametrize(
        "line", ["registry" + "=https://a", "index-url" + " = http://a", '"resol' + 'ved": "x"']
    )
    def test_a_registrys_setting(self, line: str) -> None:
        assert file_rules.registry_addresses({"x": line})

    def test_an_address_in_a_lock(self) -> None:
        rule = file_rules.addresses_in_lock
        assert rule({"packages": {"node_modules/a": {"resol" + "ved": "a.tgz"}}})
        assert rule({"packages": {"node_modules/a": {"funding": {"url": "https://a"}}}})
        assert not rule({"packages": {"node_modules/a": {"version": "1.0.0"}}})

    @pytest.mark.parametrize("wanted", ["^1.0.0", "1.x", "latest", "1.0.1"])
    def test_a_loose_pin(self, wanted: str) -> None:
        lock = {"packages": {"node_modules/a": {"version": "1.0.0"}}}
        assert len(file_rules.loose_pins({"dependencies": {"a": wanted}}, lock)) == 1
        assert not file_rules.loose_pins({"dependencies": {"a": "1.0.0"}}, lock)

    @pytest.mark.parametrize(
        ("wanted", "count"),
        [("npm:b@1.0.0", 0), ("npm:b@^1.0.0", 1), ("npm:c@1.0.0", 1), ("1.0.0", 1)],
    )
    def test_a_package_under_another_name(self, wanted: str, count: int) -> None:
        lock = {"packages": {"node_modules/a": {"name": "b", "version": "1.0.0"}}}
        assert len(file_rules.loose_pins({"dependencies": {"a": wanted}}, lock)) == count

    @pytest.mark.parametrize(
        ("init", "changelog", "count"),
        [
            ("0.2.0", "# Changes\n\n## 0.2.0 (today)\n", 0),
            ("0.2.0", "## [0.2.0]\n", 0),
            ("0.1.0", "## 0.2.0\n", 1),
            ("0.2.0", "## 0.1.0\nabout 0.2.0\n", 1),
            ("0.1.0", "", 2),
        ],
    )
    def test_versions_that_differ(self, init: str, changelog: str, count: int) -> None:
        found = file_rules.version_differences(
            "[metadata]\nversion = 0.2.0\n", f'__version__ = "{init}"\n', changelog
        )
        assert len(found) == count


class TestSourceTree:
    def test_files_are_read_as_modules(self, tmp_path: Path) -> None:
        package = tmp_path / "hyperbloom" / "wire"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("x = 1\n")
        found = read_module(package / "__init__.py", tmp_path)
        assert (found.name, found.room, found.is_package) == ("hyperbloom.wire", "wire", True)

    @pytest.mark.parametrize(
        ("name", "text", "python"),
        [
            ("a.py", "", True),
            ("run", "#!/usr/bin/env python3\n", True),
            ("run", "#!/usr/bin/env bash\n", False),
            ("a.txt", "#!/usr/bin/env python3\n", False),
        ],
    )
    def test_scripts_count_as_python(
        self, tmp_path: Path, name: str, text: str, python: bool
    ) -> None:
        (tmp_path / name).write_text(text)
        assert is_python(tmp_path / name) is python

    def test_the_project_is_found(self) -> None:
        names: Sequence[str] = [path.name for path in project_files()]
        assert {"setup.cfg", "test_rules_bite.py", "keys.py"} <= set(names)
        assert not [name for name in names if name.endswith(".pyc")]
