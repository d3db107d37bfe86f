"""Rule 1 of the house: imports point down, and the core has no clock, no chance and no I/O.

`ROOMS` is the plan of the house: what each room may know of the others and of other people's
packages. A new room is entered there first; the order of the table is the order of the floors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from types import MappingProxyType

from source_tree import PACKAGE, Module, is_within


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What a room may import: rooms below it, and top-level packages from elsewhere."""

    knows: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


CORE = ("keys", "bloom", "digests", "sketches", "trust", "wire")
CORE_PARTS = (
    "hyperbloom.discovery.dht",
    "hyperbloom.replication.broadcast.broadcast_tree",
    "hyperbloom.replication.broadcast.catch_up",
    "hyperbloom.replication.broadcast.wanted_values",
    "hyperbloom.replication.feed.membership",
    "hyperbloom.replication.reading.range_digests",
    "hyperbloom.replication.reading.ranges",
    "hyperbloom.replication.schedule.plan",
    "hyperbloom.replication.sync.reply",
    "hyperbloom.replication.schedule.sketch_try",
    "hyperbloom.replication.schedule.sync_commands",
    "hyperbloom.replication.schedule.sync_schedule",
    "hyperbloom.replication.schedule.sync_state",
)
"""Machines without I/O within other rooms; what drives them stands beside them."""

_CORE_AND_STORE = (*CORE, "store")

GROUND = ("errors",)
"""What every room stands on: the base of all errors, which knows the exit codes alone."""

ROOMS: Mapping[str, Room] = MappingProxyType(
    {
        "exit_codes": Room(),
        "errors": Room(knows=("exit_codes",)),
        "credentials": Room(),
        "keys": Room(knows=("credentials",), packages=("nacl",)),
        "feed_keys": Room(knows=("keys",)),
        "bloom": Room(packages=("mmh3", "numpy")),
        "digests": Room(knows=("keys",), packages=("blake3", "numpy")),
        "sketches": Room(packages=("numpy",)),
        "trust": Room(knows=("keys",)),
        "wire": Room(
            knows=("keys", "bloom", "trust"),
            packages=("cryptography", "google", "nacl", "noise"),
        ),
        # A round robin by levels, for whatever is shared out among peers.
        "turns": Room(),
        "store": Room(
            knows=("keys", "digests", "sketches", "turns"), packages=("lmdb", "msgpack", "numpy")
        ),
        # Small things that people write and read; no room of their own.
        "units": Room(),
        "addresses": Room(),
        "feed_words": Room(),
        "value_ranges": Room(),
        "json_fields": Room(),
        "invitation": Room(knows=("keys",)),
        "passphrase": Room(knows=("credentials",)),
        "process": Room(knows=("exit_codes", "store"), packages=("twisted", "zope")),
        # What connections of any protocol share.
        "connections": Room(knows=("addresses", "turns"), packages=("twisted", "zope")),
        # The three network parts, which do not know each other.
        "replication": Room(
            knows=(
                *_CORE_AND_STORE, "addresses", "connections", "feed_keys", "feed_words", "units"
            ),
            packages=("twisted", "zope"),
        ),
        "discovery": Room(
            knows=(*_CORE_AND_STORE, "addresses"),
            packages=("bencode2", "ifaddr", "nacl", "pyhpke", "twisted", "zeroconf", "zope"),
        ),
        "objects": Room(
            knows=(*_CORE_AND_STORE, "addresses", "connections", "json_fields"),
            packages=("cryptography", "lz4", "msgpack", "twisted", "zope"),
        ),
        # Requests of processes of the node's own, which may block.
        "https": Room(packages=("urllib3",)),
        # A feed's values as files of other tools, and entries of such files as values: functions
        # over slices, which know of no node, and processes of their own that call them.
        "outputs": Room(knows=("store", "feed_words"), packages=("idna", "numpy")),
        "inputs": Room(knows=("credentials", "https", "outputs"), packages=("idna",)),
        # Where a feed of a running node meets the tools that people run.
        "integrations": Room(
            knows=("keys", "store", "units", "connections", "passphrase", "replication",
                   "https", "outputs", "inputs", "value_ranges"),
            packages=("twisted", "zope"),
        ),
        "config": Room(
            knows=("credentials", "keys", "feed_keys", "passphrase", "process", "units",
                   "addresses", "feed_words", "integrations", "outputs", "replication",
                   "discovery", "objects"),
        ),
        "api": Room(
            knows=(*CORE, "store", "units", "addresses", "credentials", "invitation", "passphrase",
                   "connections", "feed_words", "integrations", "json_fields", "objects",
                   "replication", "value_ranges"),
            packages=("prometheus_client", "twisted", "zope"),
        ),
        "client": Room(
            knows=("addresses", "api", "integrations", "json_fields", "objects", "passphrase",
                   "value_ranges"),
            packages=("twisted", "zope"),
        ),
        # Beside snapshots it follows a running node, as any program does.
        "export": Room(
            knows=("keys", "store", "units", "json_fields", "client"),
            packages=("deltalake", "numpy", "pyarrow", "pyspark"),
        ),
        # The plugin's side: everything meets here.
        "service": Room(
            knows=(*CORE, "store", "addresses", "feed_keys", "integrations", "replication",
                   "discovery", "objects", "config", "api", "passphrase", "process"),
            packages=("twisted", "zope"),
        ),
        "tap": Room(
            knows=("config", "service", "exit_codes", "keys", "process", "store"),
            packages=("twisted", "zope"),
        ),
        # The command's side: it reaches a node through the control socket, and offline the files.
        "cli": Room(
            knows=("keys", "feed_keys", "trust", "wire", "store", "units", "addresses",
                   "exit_codes", "feed_words", "json_fields", "invitation", "config", "api",
                   "client", "export", "discovery", "integrations", "objects", "outputs",
                   "replication", "value_ranges"),
            packages=("click", "rich", "twisted"),
        ),
    }
)  # fmt: skip

CORE_STDLIB_REFUSED = (
    "_socket", "_thread", "asyncio", "concurrent", "ftplib", "getpass", "http", "io", "locale",
    "logging", "mmap", "multiprocessing", "platform", "random", "secrets", "select", "selectors",
    "shutil", "signal", "smtplib", "socket", "socketserver", "sqlite3", "ssl", "subprocess",
    "sys", "tempfile", "threading", "time", "urllib", "uuid", "warnings",
)  # fmt: skip
"""Parts of the standard library that bring I/O, a clock, chance or global state into the core."""

CORE_NAMES_REFUSED = (
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "nacl.public.PrivateKey.generate",
    "nacl.signing.SigningKey.generate",
    "nacl.bindings.crypto_box_keypair",
    "nacl.bindings.crypto_sign_keypair",
    "nacl.bindings.randombytes",
    "nacl.utils.random",
    "numpy.fromfile",
    "numpy.load",
    "numpy.memmap",
    "numpy.random",
    "numpy.save",
    "os.getpid",
    "os.getrandom",
    "os.times",
    "os.urandom",
    "breakpoint",
    "input",
    "print",
)
"""Clocks, chance and output that hide behind harmless modules."""

CORE_FILE_NAMES_REFUSED = ("open", "os.open", "os.remove", "os.environ", "os.getenv", "pathlib")
"""Files, for the core outside keys.py, which reads and writes key files."""

NETWORK = (
    "_socket", "asyncio", "http", "requests", "select", "selectors", "smtplib", "socket",
    "socketserver", "ssl", "twisted", "urllib",
)  # fmt: skip


def _breach(module: Module, line: int, sentence: str) -> str:
    return f"{module.where}:{line}: {sentence}"


def unplanned_rooms(modules: list[Module], rooms: Mapping[str, Room] = ROOMS) -> list[str]:
    """Modules whose room is not in the plan."""
    return [
        _breach(module, 1, f"the room {module.room!r} is not in the plan (ROOMS)")
        for module in modules
        if module.room and module.room not in rooms
    ]


def circles(rooms: Mapping[str, Room] = ROOMS) -> list[str]:
    """Rooms that the plan lets know a room which is not below them in the table."""
    floors = list(rooms)
    return [
        f"{name} may know {known}, which does not stand below it"
        for name, room in rooms.items()
        for known in room.knows
        if known not in floors or floors.index(known) >= floors.index(name)
    ]


def import_circles(modules: list[Module]) -> list[str]:
    """Circles among what stands side by side in a folder: modules, and folders as one.

    Imports under TYPE_CHECKING and inside functions count. Where no folder has a circle, no module
    is in one, and each folder has an order in which its imports point down.
    """
    own = {module.name for module in modules}
    sides: dict[str, dict[str, dict[str, str]]] = {}
    for module in modules:
        for reach in module.imports:
            target = reach.name if reach.name in own else reach.name.rpartition(".")[0]
            if target not in own or target == module.name:
                continue
            folder, importer, imported = _side_by_side(module, target)
            place = f"{module.where}:{reach.line}"
            sides.setdefault(folder, {}).setdefault(importer, {}).setdefault(imported, place)
    return [breach for folder, graph in sorted(sides.items()) for breach in _circle(folder, graph)]


def _side_by_side(module: Module, target: str) -> tuple[str, str, str]:
    """The folder that holds both, and the part of it that each stands in (`` is its own file)."""
    ours, theirs = module.name.split("."), target.split(".")
    common = 0
    while common < min(len(ours), len(theirs)) and ours[common] == theirs[common]:
        common += 1
    return (
        ".".join(ours[:common]),
        "".join(ours[common : common + 1]),
        "".join(theirs[common : common + 1]),
    )


def _circle(folder: str, graph: dict[str, dict[str, str]]) -> Iterator[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # Each node of the circle is imported by the one after it.
        steps = [
            f"{name or '__init__'} imports {imported or '__init__'} ({graph[name][imported]})"
            for imported, name in pairwise(error.args[1])
        ]
        yield f"{folder}: " + ", ".join(steps)


def upward_imports(modules: list[Module], rooms: Mapping[str, Room] = ROOMS) -> list[str]:
    """Imports of a room that the importing room may not know."""
    return [breach for module in modules for breach in _upward(module, rooms)]


def _upward(module: Module, rooms: Mapping[str, Room]) -> Iterator[str]:
    allowed = rooms.get(module.room, Room()).knows
    for reach in module.imports:
        if not is_within(reach.name, PACKAGE):
            continue
        parts = reach.name.split(".")
        room = parts[1] if len(parts) > 1 else ""
        if room in ("", "__version__", module.room, *GROUND) or room in allowed:
            continue
        yield _breach(module, reach.line, f"{module.room or PACKAGE} may not know {room}")


def foreign_imports(modules: list[Module], rooms: Mapping[str, Room] = ROOMS) -> list[str]:
    """Imports of packages from elsewhere that the plan does not give to the room."""
    breaches = []
    for module in modules:
        allowed = rooms.get(module.room, Room()).packages
        for reach in module.imports:
            top = reach.name.partition(".")[0]
            if top != PACKAGE and top not in sys.stdlib_module_names and top not in allowed:
                sentence = f"{module.room or PACKAGE} may not import {top}"
                breaches.append(_breach(module, reach.line, sentence))
    return breaches


def private_imports(modules: list[Module]) -> list[str]:
    """Imports of another room's private modules or names."""
    breaches = []
    for module in modules:
        for reach in module.imports:
            parts = reach.name.split(".")
            if parts[0] != PACKAGE or len(parts) < 2 or parts[1] == module.room:
                continue
            if any(part.startswith("_") and not part.endswith("__") for part in parts):
                breaches.append(_breach(module, reach.line, f"{reach.name} is private"))
    return breaches


def impure_core(modules: list[Module]) -> list[str]:
    """Clocks, chance, I/O and global state in keys, bloom, trust, wire and the other core parts."""
    return [
        breach
        for module in modules
        if _is_core(module) and not module.is_generated
        for breach in _impure(module)
    ]


def _is_core(module: Module) -> bool:
    return module.room in CORE or any(is_within(module.name, name) for name in CORE_PARTS)


def _impure(module: Module) -> Iterator[str]:
    refused = CORE_NAMES_REFUSED
    if module.room != "keys":
        refused += CORE_FILE_NAMES_REFUSED
    for reach in module.imports:
        if reach.name.partition(".")[0] in (*CORE_STDLIB_REFUSED, "twisted"):
            yield _breach(module, reach.line, f"the core may not import {reach.name}")
    for reach in module.reaches:
        if any(is_within(reach.name, name) for name in refused):
            yield _breach(module, reach.line, f"the core may not use {reach.name}")


def network_in(modules: list[Module], rooms: tuple[str, ...] = ("store", "export")) -> list[str]:
    """Anything of the network in the store or the export."""
    return [
        _breach(module, reach.line, f"{module.room} knows nothing of the network: {reach.name}")
        for module in modules
        if module.room in rooms
        for reach in module.imports
        if reach.name.partition(".")[0] in NETWORK and not reach.name.startswith("urllib.parse")
    ]
