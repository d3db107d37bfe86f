"""`twistd hyperbloom`: its options, and the service it runs.

What is wrong with the configuration, the key file, the store or an address is said in one
sentence, with the exit code of `hyperbloom.exit_codes`. A node that goes into the background does
so by `hyperbloom.process.background`, so that the command which started it says the same.
"""

from __future__ import annotations

import contextlib
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
from hyperbloom.process.background import Starting, go_to_background
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
        # twistd changes the working directory before the node starts.
        self["config"] = os.path.abspath(path)
        if self.parent is not None:
            _refuse_second(_pid_file(self.parent))


def _pid_file(twistd: BaseOptions) -> str | None:
    """The file that twistd writes its process id to, if it does."""
    name = twistd.get("pidfile")
    return os.path.join(twistd.get("rundir") or ".", name) if name else None


def _refuse_second(pid_file: str | None) -> None:
    """End this process where the one that the pid file names still runs."""
    try:
        pid = int(Path(pid_file or "").read_text(encoding="ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError, OverflowError):
        return  # there is none, or twistd says what is wrong with the file
    _fail(
        ExitCode.BUSY,
        f"the pid file {pid_file} names process {pid}, which runs: if that is this node, it is "
        "started already; for another node name another file with --pidfile, and if it is another "
        "program, remove the file",
    )


class _Guarded(MultiService):
    """Says in one sentence why the node cannot start, and ends the process with its code.

    `starting` is there where a command waits for this process, which is in the background.
    """

    def __init__(
        self, observer: ILogObserver | None, starting: Starting | None, pid_file: str | None
    ) -> None:
        super().__init__()
        self._observer = observer
        self._starting = starting
        self._pid_file = pid_file

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
            code, sentence = problem.kind.exit_code, str(problem)
            if self._starting is None:
                _fail(code, sentence)
            log.critical("{problem}", problem=sentence)
            # twistd does so when it stops, and for exceptions, whose traceback says no more.
            with contextlib.suppress(OSError):
                os.unlink(self._pid_file or "")
            self._starting.tell(code, sentence)
            raise SystemExit(int(code)) from None
        except Exception as error:
            if self._starting is not None:
                told = f"the start met an unexpected error ({type(error).__name__}: {error})"
                self._starting.tell(ExitCode.UNEXPECTED, f"{told}; the end of the log has more")
            raise
        if self._starting is not None:
            self._starting.tell(ExitCode.OK)


def _fail(code: ExitCode, sentence: str) -> NoReturn:
    # twistd has turned sys.stderr into a log by the time a service starts.
    stream = sys.__stderr__ or sys.stderr
    stream.write(f"hyperbloom: {sentence}\n")
    stream.flush()
    raise SystemExit(int(code))


def _log_name(twistd: BaseOptions) -> str | None:
    """The log file that twistd's command line names, or what it is called in the background."""
    name: str | None = twistd.get("logfile")
    return name if name or twistd.get("nodaemon") else "twistd.log"


def _observer(options: Options, config: Config) -> LevelledObserver | None:
    """Ours, unless twistd's command line names another logger; raises OSError."""
    outer = options.parent
    if outer is None or outer.get("logger") or outer.get("syslog"):
        return None
    return log_observer(
        config.log_level,
        _log_name(outer),
        files=config.log_files,
        file_bytes=config.log_bytes,
        as_json=config.log_format == "json",
    )


def _start_in_background(twistd: BaseOptions, pid_file: str | None, reactor: Any) -> Starting:
    """Fork in twistd's place, which is told that it runs in the foreground; raises OSError."""
    if pid_file is not None:
        os.close(os.open(pid_file, os.O_WRONLY | os.O_CREAT, 0o600))
    log_name = "the system's log" if twistd.get("syslog") else _log_name(twistd)
    starting = go_to_background(reactor, log_name=str(log_name))
    if twistd.get("umask") is None:
        twistd["umask"] = 0o077
    twistd["nodaemon"] = True
    return starting


def makeService(options: Options) -> IService:
    """The service for twistd; ends the process where the configuration cannot be used."""
    from twisted.internet import reactor

    try:
        config = load_config(Path(options["config"]))
        identity = load_key_file(config.identity)
    except (ConfigError, KeyFileError) as problem:
        _fail(ExitCode.CONFIG, str(problem))
    twistd = options.parent
    starting = pid_file = None
    try:
        observer = _observer(options, config)
        if twistd is not None and not twistd.get("nodaemon"):
            pid_file = _pid_file(twistd)
            starting = _start_in_background(twistd, pid_file, reactor)
    except OSError as problem:
        reason = f"{problem.filename} cannot be written ({problem.strerror})"
        _fail(ExitCode.USAGE, f"{reason}; name another file with twistd's --logfile or --pidfile")
    guarded: Any = _Guarded(observer, starting, pid_file)
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
