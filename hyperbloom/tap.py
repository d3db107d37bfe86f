"""`twistd hyperbloom`: its options, and the service it runs.

What is wrong with the configuration, the key file, the store or an address is said in one
sentence, with the exit code of `hyperbloom.exit_codes`. Once twistd has gone into the background
it is the log that says it, and the command ends with twistd's own code, 1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from twisted.application.service import IService, MultiService
from twisted.logger import ILogObserver, Logger
from twisted.python.components import Componentized
from twisted.python.usage import Options as BaseOptions
from twisted.python.usage import UsageError

from hyperbloom.config import Config, ConfigError, load_config
from hyperbloom.exit_codes import ExitCode
from hyperbloom.keys import KeyFileError, load_key_file
from hyperbloom.process.crashes import CrashFile
from hyperbloom.process.logs import LevelledObserver, log_observer
from hyperbloom.process.systemd import Notifier, Supervision, watchdog_seconds
from hyperbloom.service.node_service import NodeService, StartError

__all__ = ["Options", "makeService"]

CONFIG_VARIABLE = "HYPERBLOOM_CONFIG"

log = Logger()


class Options(BaseOptions):
    """The options behind `twistd hyperbloom`."""

    synopsis = "[-c FILE]"
    longdesc = "Runs a hyperbloom node: replicates feeds among peers who trust each other."
    optParameters = [  # noqa: RUF012  twistd reads it so
        ["config", "c", None, f"the node's hyperbloom.toml (else the variable {CONFIG_VARIABLE})"],
    ]

    def postOptions(self) -> None:
        """Called by twistd when all options are read."""
        path = self["config"] or os.environ.get(CONFIG_VARIABLE)
        if not path:
            raise UsageError(f"name the configuration with -c FILE or {CONFIG_VARIABLE}")
        # twistd changes the working directory when it forks.
        self["config"] = os.path.abspath(path)


class _Guarded(MultiService):
    """Says in one sentence why the node cannot start, and ends the process with its code."""

    def __init__(self, observer: ILogObserver | None, *, in_background: bool) -> None:
        super().__init__()
        self._observer = observer
        self._in_background = in_background

    def setServiceParent(self, parent: Any) -> None:
        """Give the application, which twistd makes around its services, our log observer."""
        if self._observer is not None and isinstance(parent, Componentized):
            parent.setComponent(ILogObserver, self._observer)
        super().setServiceParent(parent)

    def startService(self) -> None:
        """Start the node, or end the process."""
        try:
            super().startService()
        except StartError as problem:
            if self._in_background:
                # The process that was started waits for the outcome: twistd passes on exceptions,
                # but says nothing of an exit, and it would wait for ever.
                log.critical("{problem}", problem=str(problem))
                raise
            _fail(problem.kind.exit_code, str(problem))


def _fail(code: ExitCode, sentence: str) -> NoReturn:
    # twistd has turned sys.stderr into a log by the time a service starts.
    stream = sys.__stderr__ or sys.stderr
    stream.write(f"hyperbloom: {sentence}\n")
    stream.flush()
    raise SystemExit(int(code))


def _observer(options: Options, config: Config) -> LevelledObserver | None:
    """Ours, unless twistd's command line names another logger."""
    outer = options.parent
    if outer is None or outer.get("logger") or outer.get("syslog"):
        return None
    logfile = outer.get("logfile")
    if not logfile and not outer.get("nodaemon"):
        logfile = "twistd.log"
    return log_observer(
        config.log_level,
        logfile,
        files=config.log_files,
        file_bytes=config.log_bytes,
        as_json=config.log_format == "json",
    )


def makeService(options: Options) -> IService:
    """The service for twistd; ends the process where the configuration cannot be used."""
    from twisted.internet import reactor

    try:
        config = load_config(Path(options["config"]))
        identity = load_key_file(config.identity)
    except (ConfigError, KeyFileError) as problem:
        _fail(ExitCode.CONFIG, str(problem))
    twistd = options.parent
    observer = _observer(options, config)
    guarded: Any = _Guarded(
        observer,
        in_background=twistd is not None and not twistd.get("nodaemon"),
    )
    notifier = Notifier.from_environment()
    node = NodeService(
        config,
        identity,
        reactor=reactor,
        notifier=notifier,
        set_log_level=None if observer is None else observer.set_level,
        crashes=CrashFile(config.store_path),
    )
    node.setServiceParent(guarded)
    supervision = Supervision(
        notifier, reactor=reactor, reload=node.reload, watchdog=watchdog_seconds()
    )
    supervision.setServiceParent(guarded)
    service: IService = guarded
    return service
