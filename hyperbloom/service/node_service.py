"""A configuration becomes a running node: store, writer, replication and the control socket.

This is the only module that knows all parts. `NodeService` is what twistd runs: at its start it
opens the store (after twistd has forked: no LMDB environment crosses a fork), then listens; at its
stop it closes the connections, drains the writer and closes the store, in that order.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import time
from collections.abc import Callable
from random import SystemRandom
from typing import Any, TypeVar, cast

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, fail
from twisted.internet.endpoints import serverFromString
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThreadPool
from twisted.logger import Logger, globalLogPublisher
from twisted.python.threadpool import ThreadPool

from hyperbloom.api.http.access import Access, load_token
from hyperbloom.api.monitoring.metrics import ExportCollector
from hyperbloom.api.monitoring.recent_errors import RecentErrors
from hyperbloom.api.service import ControlService, TcpService
from hyperbloom.config import Config, ConfigError
from hyperbloom.discovery.service import DhtPortTaken, DiscoveryService
from hyperbloom.errors import ErrorKind, HyperbloomError
from hyperbloom.feed_keys import FeedKeys
from hyperbloom.integrations.commands import Commands
from hyperbloom.integrations.integration import IntegrationContext
from hyperbloom.integrations.service import IntegrationsService
from hyperbloom.keys import Identity
from hyperbloom.objects.classes.declarations import Declaration
from hyperbloom.objects.classes.hashes import HashRule
from hyperbloom.objects.classes.types import Types
from hyperbloom.objects.peers.context import PoolContext
from hyperbloom.objects.pool import ObjectPool
from hyperbloom.objects.service import ObjectsService
from hyperbloom.passphrase import load_passphrase
from hyperbloom.process.crashes import CrashFile
from hyperbloom.process.data_folder import why_unwritable
from hyperbloom.process.descriptors import make_room
from hyperbloom.process.free_memory import MemoryRelease
from hyperbloom.process.store_log import StoreLog
from hyperbloom.process.systemd import Notifier, listening_endpoints
from hyperbloom.replication.context import FeedContext
from hyperbloom.replication.feeds import UnknownFeed, settle_feeds
from hyperbloom.replication.node import Node
from hyperbloom.service.reload import ConfigReload, Reloaded
from hyperbloom.service.searched_feeds import NodeFeeds
from hyperbloom.store import PutMeta, Store, StoreError, Writer
from hyperbloom.store.objects.table import DiskBounds
from hyperbloom.store.tables.meta import NODE_ID

__all__ = ["NodeService", "StartError"]

T = TypeVar("T")

#: Threads for scans of the store; they mostly wait for the disk or run numpy. They begin with the
#: node: begun amid a crowd, what they are made of would lie among what the crowd leaves behind.
SCAN_THREADS = 2

PEER_ID_BYTES = 32

#: The name under which the store keeps the table of the DHT node.
DHT_STATE = "dht"

#: The same of what the status page shows of the last days.
HISTORY = "history"

#: Seconds a scanning thread may keep the interpreter to itself while the reactor waits for it.
#: Python's 5 ms add up over the system calls of one turn of the reactor.
SWITCH_SECONDS = 0.0005

log = Logger()


class StartError(HyperbloomError):
    """The node cannot start; its kind has the exit code of the process."""

    kind: ErrorKind

    def __init__(self, kind: ErrorKind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind = kind


class NodeService(MultiService):
    """A node under twistd."""

    def __init__(
        self,
        config: Config,
        identity: Identity,
        *,
        reactor: Any,
        notifier: Notifier | None = None,
        set_log_level: Callable[[str], None] | None = None,
        crashes: CrashFile | None = None,
    ) -> None:
        super().__init__()
        self._notifier = notifier or Notifier(None)
        self._set_log_level = set_log_level
        self._crashes = crashes
        self._reload: ConfigReload | None = None
        self._config = config
        self._identity = identity
        self._reactor = reactor
        self._store: Store | None = None
        self._writer: Writer | None = None
        self._recent = RecentErrors()
        self._threads = ThreadPool(SCAN_THREADS, SCAN_THREADS, name="scan")

    def startService(self) -> None:
        """Open the store, listen and dial; raises `StartError`."""
        globalLogPublisher.addObserver(self._recent)
        try:
            _require_writable(self._config)
            self._arm()
            self._build()
            super().startService()
        except BaseException as error:
            problem = _start_error(error, self._config)
            self._abandon()
            if problem is None:
                raise
            raise problem from error
        # What imports and the start have made lives as long as the process. Looking through it at
        # every full collection stops the reactor for up to 100 ms while much is going on.
        gc.freeze()
        self._arm()  # on a first start there was no folder for it before
        if self._crashes is not None:
            self._crashes.clear()
        self._say_hello()

    def _arm(self) -> None:
        if self._crashes is not None:
            self._crashes.arm()

    def stopService(self) -> Deferred[None]:
        """Close connections, drain the writer, close the store."""
        stopped = cast("Deferred[None]", super().stopService())
        return stopped.addBoth(self._drain)

    def reload(self) -> Deferred[Reloaded]:
        """Read the configuration anew and take over what can change while the node runs.

        Raises `ConfigError`, `KeyFileError` or `StoreError`, which is logged: the node goes on.
        """
        if self._reload is None:
            return fail(ConfigError("the node does not run"))
        self._notifier.reloading()

        def ended(outcome: object) -> object:
            self._notifier.ready()
            return outcome

        return self._reload().addBoth(ended)

    def _build(self) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        config, identity = self._config, self._identity
        feed_keys = FeedKeys(config.feed_keys)
        feed_keys.load()
        self._make_room(config)
        store = self._store = Store.open(config.store_path)
        _require_owner(store, identity)
        told = StoreLog(store.condition, seconds=self._reactor.seconds)
        store.condition.listener = lambda: self._reactor.callFromThread(told.look)
        feeds = settle_feeds(store, identity.public_key, config.feeds, feed_keys)
        self._writer = Writer(store, deliver=self._reactor.callFromThread)
        self._writer.submit(PutMeta(name=NODE_ID, value=identity.public_key), _logged)
        self._threads.start()
        context = FeedContext(
            identity=identity,
            store=store,
            writer=self._writer,
            limits=config.limits,
            sync=config.sync,
            clock=self._reactor,
            now=time.time,
            random_bytes=os.urandom,
            in_thread=self._in_thread,
            work_seconds=time.thread_time,
            peer_id=os.urandom(PEER_ID_BYTES),
            leeway=config.leeway,
            noise=config.noise,
            trust=config.trust,
            feed_keys=feed_keys,
        )
        node = Node(
            context,
            feeds=feeds,
            pinned=[feed.key for feed in config.feeds],
            endpoints=listening_endpoints(self._reactor, config.listen),
            advertise=config.advertise,
            default_feed=config.default_feed,
        )
        node.setName("replication")
        node.setServiceParent(self)
        integrations = self._build_integrations(node)
        self._reload = ConfigReload(
            config, node, set_log_level=self._set_log_level, integrations=integrations
        )
        discovery = self._build_discovery(node, store, self._writer)
        objects = self._build_objects(store, self._writer)
        MemoryRelease(
            lambda: node.connections.ended,
            self._reactor,
            self._in_thread,
            forget=context.shares.forget_gone,
        ).setServiceParent(self)
        self._build_api(node, store, self._writer, discovery, objects, integrations)

    def _build_integrations(self, node: Node) -> IntegrationsService:
        """Outputs, inputs and hooks: none in most configurations."""
        context = IntegrationContext(
            node=node,
            commands=Commands(self._reactor),
            data=self._config.data,
            store_path=self._config.store_path,
            clock=self._reactor,
            now=time.time,
            own=self._config.own_places,
        )
        integrations = IntegrationsService(self._config.integrations, context)
        integrations.setServiceParent(self)
        return integrations

    def _make_room(self, config: Config) -> None:
        """Have descriptors for all connections there may be."""
        most = config.limits.connections + config.objects.connections
        given = make_room(most)
        if given is not None:
            log.warn(
                "The system lets this process open {given} files and connections, too few for "
                "the {most} connections of [limits] and [objects]; raise `ulimit -n`, or set "
                "connections lower",
                given=given,
                most=most,
            )

    def _build_api(
        self,
        node: Node,
        store: Store,
        writer: Writer,
        discovery: DiscoveryService | None,
        objects: ObjectsService | None,
        integrations: IntegrationsService,
    ) -> None:
        """The control socket and, if the configuration wants it, the TCP port."""
        settings, access = self._config.api, None
        if settings.listen is not None:
            access = Access(
                settings.listen,
                load_token(settings.token),
                metrics_token=load_token(settings.metrics_token),
                clock=self._reactor.seconds,
                now=time.time,
            )
        control = ControlService(
            node,
            self._config.control_socket,
            reactor=self._reactor,
            discovery=discovery,
            objects=objects,
            integrations=integrations,
            reload=self.reload,
            access=access,
            recent=self._recent,
            collectors=[ExportCollector(self._config.export_note)],
            history=store.get_meta(HISTORY) or b"",
            save_history=lambda state: writer.submit(PutMeta(name=HISTORY, value=state), _logged),
        )
        control.setServiceParent(self)
        if access is not None:
            TcpService(control.context, access, reactor=self._reactor).setServiceParent(self)

    def _build_discovery(self, node: Node, store: Store, writer: Writer) -> DiscoveryService | None:
        """The search for peers, if the configuration wants it."""
        settings = self._config.discovery
        if not settings.enabled:
            return None
        secret = None if settings.secret is None else load_passphrase(settings.secret).encode()

        def seen_at() -> str | None:
            address = discovery.dht.external_address
            return None if address is None else address.host

        discovery = DiscoveryService(
            settings,
            feeds=NodeFeeds(node, seen_at=seen_at, reach=lambda: discovery.dht.reach),
            reactor=self._reactor,
            now=time.time,
            random=SystemRandom(),
            state=store.get_meta(DHT_STATE) or b"",
            save=lambda state: writer.submit(PutMeta(name=DHT_STATE, value=state), _logged),
            secret=secret,
        )
        discovery.setServiceParent(self)
        return discovery

    def _build_objects(self, store: Store, writer: Writer) -> ObjectsService | None:
        """The object pool, if the configuration has the node take part in one."""
        settings = self._config.objects
        if not settings.enabled:
            return None
        path = settings.passphrase_file
        types = Types(
            rule=HashRule(settings.hash_rule), configured=map(Declaration.parse, settings.types)
        )
        context = PoolContext(
            pool=ObjectPool(
                store,
                writer,
                types=types,
                now=time.time,
                clock=self._reactor,
                most=settings.objects,
                bounds=DiskBounds(settings.disk_bytes, settings.peer_disk_bytes),
            ),
            settings=settings,
            clock=self._reactor,
            now=time.time,
            random_bytes=os.urandom,
            in_thread=self._in_thread,
            node_id=os.urandom(PEER_ID_BYTES).hex(),
            passphrase=None if path is None else load_passphrase(path),
        )
        endpoints = [serverFromString(self._reactor, text) for text in settings.listen]
        objects = ObjectsService(context, endpoints=endpoints)
        objects.setName("objects")
        objects.setServiceParent(self)
        return objects

    def _in_thread(self, call: Callable[[], T]) -> Deferred[T]:
        return cast("Deferred[T]", deferToThreadPool(self._reactor, self._threads, call))

    def _say_hello(self) -> None:
        node = cast(Node, self.getServiceNamed("replication"))
        log.info(
            "The node serves its feeds ({feeds}) on {listening}",
            feeds=len(node.feeds),
            listening=", ".join(map(str, node.listening())) or "no port",
        )
        for remark in self._config.remarks:
            log.warn("{path}: {remark}", path=str(self._config.path), remark=remark)
        if self._config.default_feed is not None:
            try:
                node.resolve(None)
            except UnknownFeed as problem:  # it may come yet, by an invitation
                log.warn("{problem}", problem=str(problem))

    def _drain(self, result: object) -> Deferred[None]:
        """Close the writer in a thread: it may have a transaction to finish."""
        writer, store = self._writer, self._store
        self._writer = self._store = None

        def close() -> None:
            if writer is not None:
                writer.close()

        def closed(outcome: object) -> object:
            globalLogPublisher.removeObserver(self._recent)
            if self._threads.started:
                self._threads.stop()
            if store is not None:
                store.close()
            log.info("Stopped: everything acknowledged is on disk")
            return result

        done = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), close)
        return cast("Deferred[None]", done.addBoth(closed))

    def _abandon(self) -> None:
        """Leave nothing open after a start that failed; the reactor does not run yet."""
        globalLogPublisher.removeObserver(self._recent)
        if self._writer is not None:
            self._writer.close()
        if self._threads.started:
            self._threads.stop()
        if self._store is not None:
            self._store.close()
        self._writer = self._store = None


def _require_writable(config: Config) -> None:
    """Raise StoreError where the data folder, or the store in it, cannot be written."""
    for folder in (config.data, config.store_path):
        why = why_unwritable(folder)
        if why is not None:
            raise StoreError(f"the data folder cannot be written: {why}")


def _require_owner(store: Store, identity: Identity) -> None:
    """Raise StoreError for a store that another node's key made; a new one says nothing yet."""
    owner = store.get_meta(NODE_ID)
    if owner is not None and owner != identity.public_key:
        raise StoreError(
            f"the store {store.path} is of the node {owner.hex()}, and this node's key is "
            f"{identity.public_key.hex()}; put the right key or store back, or begin with the "
            "store's values: `hyperbloom snapshot OUT`, then `hyperbloom seed OUT --replace`"
        )


def _logged(outcome: object) -> None:
    if isinstance(outcome, BaseException):
        log.error("The store does not take what it should keep: {why}", why=outcome)


def _table_that_listens(error: CannotListenError, config: Config) -> str:
    """The table of the configuration that names the address of a port."""
    api, pool = config.api.listen, config.objects
    if api is not None and (error.interface, error.port) == (api.host, api.port):
        return "api"
    # The pool comes after the node's own ports: where both name a port, it is the one that failed.
    ending = f":{error.port}" + (f":interface={error.interface}" if error.interface else "")
    plain = (text.replace("\\:", ":").replace("port=", "") for text in pool.listen)
    return "objects" if pool.enabled and any(text.endswith(ending) for text in plain) else "node"


def _cannot_listen(error: CannotListenError, config: Config) -> StartError:
    """What keeps a port from being listened on, and what to change."""
    reason = getattr(error.socketError, "strerror", None) or error.socketError
    setting = f"listen under [{_table_that_listens(error, config)}] in {config.path}"
    where = f"{error.interface or 'any address'}, port {error.port}"
    match getattr(error.socketError, "errno", None):
        case errno.EADDRNOTAVAIL:
            cure = f"this machine has no such address; name one that `ip address` shows: {setting}"
            return StartError(ErrorKind.BAD_CONFIG, f"cannot listen on {where}: {reason}; {cure}")
        case errno.EACCES:
            cure = f"ports below 1024 are the system's; let it hold the port, or change {setting}"
            return StartError(ErrorKind.BAD_CONFIG, f"cannot listen on {where}: {reason}; {cure}")
    cure = f"stop what uses it, or change {setting}"
    return StartError(ErrorKind.BUSY, f"cannot listen on {where}: {reason}; {cure}")


def _start_error(error: BaseException, config: Config) -> StartError | None:
    """What a failed start tells the operator; None for what nobody foresaw."""
    if isinstance(error, DhtPortTaken):
        return StartError(
            ErrorKind.BUSY,
            f"{error}; stop what uses it or change port under [discovery] in {config.path}",
        )
    if isinstance(error, CannotListenError):
        return _cannot_listen(error, config)
    if isinstance(error, HyperbloomError) and error.kind is not None:
        return StartError(error.kind, str(error))
    if isinstance(error, OSError) and error.filename is not None:
        return StartError(
            ErrorKind.STORE,
            f"{error.filename} cannot be used ({error.strerror}); everything in {config.data} has "
            "to belong to who runs the node",
        )
    return None
