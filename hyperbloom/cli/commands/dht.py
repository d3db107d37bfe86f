"""Commands that speak to the Mainline DHT by themselves, without a running node of hyperbloom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from hyperbloom.addresses import Address, check_interface
from hyperbloom.cli.app import App, Group, pass_app
from hyperbloom.cli.parameters import HOST_PORT, WholeNumber, as_bytes, whole_hex

if TYPE_CHECKING:
    from twisted.internet.defer import Deferred

    from hyperbloom.cli.commands.dht_session import Session
    from hyperbloom.discovery.dht.reports import PutReport
    from hyperbloom.discovery.dht_node import DhtNode

__all__ = ["dht"]

DEFAULT_PORT = 6881
_SAVE_SECONDS = 300.0
_EQUAL_SEQ = ("overwrite", "keep", "reject")


class HexDigits(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Bytes of one of some lengths, in hex."""

    def __init__(self, name: str, *lengths: int) -> None:
        self.name = name
        self._lengths = lengths

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> bytes:
        """Called by click."""
        if isinstance(value, bytes):
            return value
        data = whole_hex(value, *self._lengths)
        if data is None:
            digits = " or ".join(str(2 * length) for length in self._lengths)
            self.fail(f"{value!r} is not {digits} hex digits", param, ctx)
        return data


class Interface(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """An IP address of this machine, or nothing for all."""

    name = "address"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Called by click."""
        try:
            return check_interface(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.group(cls=Group)
def dht() -> None:
    """Be a node of the Mainline DHT, or ask it, without a running node of hyperbloom.

    Which network is meant is said by --bootstrap, or by --public for the one of BitTorrent.
    """


def _network_options(command: Any) -> Any:
    command = click.option(
        "--public", is_flag=True, help="The public network, by its well-known nodes."
    )(command)
    return click.option(
        "--bootstrap",
        type=HOST_PORT,
        multiple=True,
        metavar="HOST:PORT",
        help="A node to begin with; may be repeated.",
    )(command)


def _listen_options(command: Any) -> Any:
    for option in (
        click.option(
            "--equal-seq",
            type=click.Choice(_EQUAL_SEQ),
            default=_EQUAL_SEQ[0],
            show_default=True,
            help="What becomes of another value with the stored sequence number.",
        ),
        click.option(
            "--state",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="Keep id and table there, from one start to the next.",
        ),
        click.option(
            "--interface",
            type=Interface(),
            default="",
            metavar="ADDRESS",
            help="Listen on this address only.",
        ),
        click.option(
            "--port",
            type=WholeNumber(0, 65_535),
            default=DEFAULT_PORT,
            metavar="PORT",
            show_default=True,
            help="UDP port; 0 lets the system choose.",
        ),
    ):
        command = option(command)
    return command


def _salt_option(command: Any) -> Any:
    return click.option("--salt", default="", metavar="SALT", help="The item's salt.")(command)


def _hex_option(command: Any) -> Any:
    return click.option("--hex", "as_hex", is_flag=True, help="Value and salt are hex.")(command)


def _addresses(bootstrap: Sequence[str], public: bool) -> tuple[str, ...]:
    if bootstrap or not public:
        return tuple(bootstrap)
    from hyperbloom.discovery.dht.settings import PUBLIC_ROUTERS

    return PUBLIC_ROUTERS


def _asking(app: App, bootstrap: Sequence[str], public: bool) -> Session:
    """The session of a command that asks and goes."""
    from hyperbloom.cli.commands.dht_session import Session
    from hyperbloom.discovery.dht.settings import DhtSettings

    addresses = _addresses(bootstrap, public)
    if not addresses:
        raise click.UsageError("say which network: give --bootstrap HOST:PORT, or --public")
    settings = DhtSettings(server=False, bootstrap=addresses)
    interface = "::" if any(Address.parse(text).is_ipv6 for text in addresses) else ""
    return Session(settings=settings, interface=interface, timeout=app.timeout())


def _ask(app: App, bootstrap: Sequence[str], public: bool, work: Callable[[DhtNode], Any]) -> Any:
    """Join the network, and do the work; raises NoNodeAnswered when nobody is there."""
    session = _asking(app, bootstrap, public)
    from hyperbloom.cli.commands.dht_session import NoNodeAnswered, run_session

    async def join_and_work(node: DhtNode, reactor: Any) -> Any:
        if not await node.bootstrap():
            asked = ", ".join(session.settings.bootstrap)
            raise NoNodeAnswered(f"no node of the DHT answered at {asked}")
        return await work(node)

    return run_session(session, join_and_work)


@dht.command(config_option=False, timeout_option=False)
@_listen_options
@_network_options
@pass_app
def serve(
    app: App,
    port: int,
    interface: str,
    state: Path | None,
    equal_seq: str,
    bootstrap: tuple[str, ...],
    public: bool,
) -> None:
    """Be a node of the DHT until Ctrl-C: answer, and store for others.

    Prints where it listens, and its id. Without --bootstrap and --public it waits to be found.
    """
    _serve(app, port, interface, state, equal_seq, _addresses(bootstrap, public))


@dht.command("bootstrap", config_option=False, timeout_option=False)
@_listen_options
@pass_app
def bootstrap_node(app: App, port: int, interface: str, state: Path | None, equal_seq: str) -> None:
    """Be the first node of a private network until Ctrl-C: one that asks nobody to let it in.

    Others name its address with --bootstrap, or in their configuration.
    """
    _serve(app, port, interface, state, equal_seq, ())


def _serve(
    app: App,
    port: int,
    interface: str,
    state: Path | None,
    equal_seq: str,
    addresses: tuple[str, ...],
) -> None:
    from twisted.internet.defer import CancelledError
    from twisted.internet.task import deferLater

    from hyperbloom.cli.commands.dht_session import Session, run_session, save_state
    from hyperbloom.discovery.dht.settings import DhtSettings, EqualSeq

    settings = DhtSettings(bootstrap=addresses, equal_seq=EqualSeq(equal_seq))

    async def work(node: DhtNode, reactor: Any) -> None:
        address = "" if node.address is None else str(node.address)
        if app.out.as_json:
            app.out.json({"address": address, "node_id": node.node_id.hex()}, flush=True)
        else:
            app.out.facts([("address", address), ("node id", node.node_id.hex())])
            app.out.raw(b"", flush=True)
        joined: Deferred[int] = node.bootstrap()
        joined.addCallback(
            lambda known: app.out.note(f"joined: {known} node{'s' * (known != 1)} known")
        )
        # Cancelled when the node stops before that; nobody waits for it then.
        joined.addErrback(lambda failure: failure.trap(CancelledError) and None)
        while True:
            await deferLater(reactor, _SAVE_SECONDS)
            save_state(state, node)

    run_session(Session(settings=settings, port=port, interface=interface, state=state), work)


@dht.command(config_option=False)
@click.argument("key", type=HexDigits("key or hash", 32, 20), metavar="KEY|HASH")
@_salt_option
@_hex_option
@_network_options
@pass_app
def get(
    app: App, key: bytes, salt: str, as_hex: bool, bootstrap: tuple[str, ...], public: bool
) -> None:
    """Print what the DHT holds under a public key and salt, or under a hash.

    All distinct values of a key are printed, each after its sequence number, the greatest first:
    nodes may hold different ones. A value that is no text or bytes is printed bencoded.
    """
    if len(key) == 20:
        _get_immutable(app, key, as_hex, bootstrap, public)
        return
    named = as_bytes(salt, as_hex=as_hex)
    found = _ask(app, bootstrap, public, lambda node: node.get_mutable(key, named))
    items = sorted(found.items, key=lambda item: (-item.seq, item.value))
    if app.out.as_json:
        shown = [{"seq": each.seq, "value": _plain(each.value).hex()} for each in items]
        app.out.json({"items": shown, "asked": found.asked, "answered": found.answered})
    for item in items if not app.out.as_json else ():
        app.out.raw(b"%d\t" % item.seq)
        app.out.values([_shown(item.value, as_hex)])
    if not items:
        _nothing_found(found.asked, found.answered)


def _get_immutable(
    app: App, target: bytes, as_hex: bool, bootstrap: tuple[str, ...], public: bool
) -> None:
    found = _ask(app, bootstrap, public, lambda node: node.get_immutable(target))
    if app.out.as_json:
        value = None if found.value is None else _plain(found.value).hex()
        app.out.json({"value": value, "asked": found.asked, "answered": found.answered})
    elif found.value is not None:
        app.out.values([_shown(found.value, as_hex)])
    if found.value is None:
        _nothing_found(found.asked, found.answered)


@dht.command(config_option=False)
@click.argument("value", metavar="VALUE")
@click.option(
    "--key",
    "key_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Key file to sign with; without it the value is stored under its hash.",
)
@_salt_option
@click.option(
    "--seq",
    type=WholeNumber(0, 2**63 - 1),
    metavar="N",
    help="Sequence number; else one more than the greatest found.",
)
@click.option(
    "--cas",
    type=WholeNumber(0, 2**63 - 1),
    metavar="N",
    help="Store only in place of this sequence number.",
)
@_hex_option
@_network_options
@pass_app
def put(
    app: App,
    value: str,
    key_file: Path | None,
    salt: str,
    seq: int | None,
    cas: int | None,
    as_hex: bool,
    bootstrap: tuple[str, ...],
    public: bool,
) -> None:
    """Store a value in the DHT and read it back.

    Prints where it is stored, and what the nodes said. It exits with 1 when the value was not found
    again: that nodes said that they stored it proves nothing.
    """
    from hyperbloom.discovery.dht.common import bencode
    from hyperbloom.discovery.dht.common.items import immutable_target, sign_item
    from hyperbloom.keys import load_key_file

    data = bencode.encode(as_bytes(value, as_hex=as_hex))
    if key_file is None:
        report = _ask(app, bootstrap, public, lambda node: node.put_immutable(data))
        _print_report(app, {"target": immutable_target(data).hex()}, report)
        return
    identity, named = load_key_file(key_file), as_bytes(salt, as_hex=as_hex)

    async def sign_and_put(node: DhtNode) -> tuple[Any, PutReport]:
        number = seq
        if number is None:
            found = await node.get_mutable(identity.public_key, named)
            number = max((item.seq for item in found.items), default=0) + 1
        item = sign_item(identity, salt=named, seq=number, value=data)
        return item, await node.put_mutable(item, cas=cas)

    item, report = _ask(app, bootstrap, public, sign_and_put)
    names = {"key": identity.public_key.hex(), "target": item.target.hex(), "seq": item.seq}
    _print_report(app, names, report)


@dht.command(config_option=False)
@click.argument("target", type=HexDigits("info hash", 20), metavar="INFOHASH")
@click.option("--node", "nodes", is_flag=True, help="The closest nodes, not the peers.")
@_network_options
@pass_app
def lookup(app: App, target: bytes, nodes: bool, bootstrap: tuple[str, ...], public: bool) -> None:
    """Print the peers that have announced themselves under an info hash.

    With --node, the nodes closest to it: id and address, the closest first.
    """
    rows: list[tuple[str, ...]]
    if nodes:
        found = _ask(app, bootstrap, public, lambda node: node.find_node(target))
        rows = [(each.node_id.hex(), str(each.address)) for each in found.nodes]
        form: Any = [{"node_id": node_id, "address": address} for node_id, address in rows]
    else:
        found = _ask(app, bootstrap, public, lambda node: node.get_peers(target))
        rows = [(str(peer),) for peer in found.peers]
        form = [row[0] for row in rows]
    if app.out.as_json:
        name = "nodes" if nodes else "peers"
        app.out.json({name: form, "asked": found.asked, "answered": found.answered})
    for row in rows if not app.out.as_json else ():
        app.out.line("\t".join(row))
    if not rows:
        _nothing_found(found.asked, found.answered)


def _print_report(app: App, names: dict[str, Any], report: PutReport) -> None:
    facts = {
        **names,
        "asked": report.asked,
        "stored": report.stored,
        "refused": report.refused,
        "silent": report.silent,
        "found": report.found,
        "others": len(report.others),
    }
    if app.out.as_json:
        app.out.json({**facts, "refusals": {str(c): n for c, n in report.refusals.items()}})
    else:
        texts = ((name, str(fact)) for name, fact in facts.items() if name != "found")
        app.out.facts([*texts, ("found", "yes" if report.found else "no")])
    if not report.found:
        raise click.ClickException("the value was not found again")


def _nothing_found(asked: int, answered: int) -> NoReturn:
    nodes = "1 node" if asked == 1 else f"{asked} nodes"
    raise click.ClickException(f"nothing found ({nodes} asked, {answered} answered)")


def _plain(value: bytes) -> bytes:
    """The bytes of a bencoded string; anything else stays bencoded."""
    from hyperbloom.discovery.dht.common import bencode

    plain = bencode.decode(value)
    return plain if isinstance(plain, bytes) else value


def _shown(value: bytes, as_hex: bool) -> bytes:
    plain = _plain(value)
    return plain.hex().encode("ascii") if as_hex else plain
