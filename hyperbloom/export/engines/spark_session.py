"""A Spark session: where its master and its Java come from, and how both end.

On a local master nothing listens but on 127.0.0.1, and there is no status page. Another master is
taken as Spark's own settings say, and its executors are sent this package.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hyperbloom.export.engines.executors import Executors
from hyperbloom.export.engines.interrupts import deferred, uninterrupted, waited_for
from hyperbloom.export.engines.java import find_java
from hyperbloom.export.engines.tasks import memory_settings
from hyperbloom.export.errors import (
    MasterUnreachable,
    MissingJava,
    MissingPackage,
    missing_package,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "is_in_this_process",
    "is_on_this_machine",
    "one_sentence",
    "resolve_master",
    "running_cluster",
    "spark_session",
    "start_spark",
]

DEFAULT_MASTER: Final = "local[*]"
_JAVA_END_SECONDS: Final = 20
_CONNECT_MILLISECONDS: Final = 5_000
_TRACEBACK: Final = "Traceback (most recent call last)"
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
_STANDALONE = re.compile(r"spark://(.+)")

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit for the Python that it runs."""
_SQL_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
}

_LOG_SETTINGS = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n
# The level of this one is compared with the root's, and a difference told to the user.
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
# What a task failed of is said by the export itself, in one sentence.
logger.tasks.name = org.apache.spark.scheduler
logger.tasks.level = off
logger.executors.name = org.apache.spark.executor
logger.executors.level = off
logger.context.name = org.apache.spark.SparkContext
logger.context.level = off
"""


def running_cluster() -> str | None:
    """The master of the session that runs in this process, if it is a cluster's."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    master = None if context is None else context.master
    return None if master is None or is_in_this_process(master) else master


def resolve_master(given: str | None, environ: Mapping[str, str]) -> str:
    """--master, else MASTER, else spark-defaults.conf, else all cores of this machine.

    Raises MasterUnreachable for what can be none.
    """
    master = given or environ.get("MASTER") or _configured_master(environ) or DEFAULT_MASTER
    if not master.startswith(("local", "spark://", "k8s://")) and master != "yarn":
        raise MasterUnreachable(
            f"{master!r} is no Spark master; write local[N], spark://HOST:PORT, k8s://… or yarn"
        )
    return master


def _configured_master(environ: Mapping[str, str]) -> str | None:
    folders = [environ.get("SPARK_CONF_DIR")]
    if environ.get("SPARK_HOME"):
        folders.append(os.path.join(environ["SPARK_HOME"], "conf"))
    for folder in filter(None, folders):
        try:
            lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines()
        except OSError:
            continue
        for line in lines:
            name, _, value = line.strip().replace("=", " ", 1).partition(" ")
            if name == "spark.master" and value.strip():
                return value.strip()
    return None


def _settings(master: str, scratch: Path) -> dict[str, str]:
    log_file = scratch / "log4j2.properties"
    log_file.write_text(_LOG_SETTINGS, encoding="utf-8")
    settings = {
        **_SQL_SETTINGS,
        "spark.app.name": "hyperbloom export",
        "spark.ui.showConsoleProgress": "false",
        **{f"spark.executorEnv.{name}": value for name, value in memory_settings().items()},
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_file.as_uri()}",
    }
    if is_on_this_machine(master):
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            # Small tables are the rule on one machine; a task for each of 200 parts is not.
            "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
        }
    return settings


def is_on_this_machine(master: str) -> bool:
    """Whether the master is no cluster of several machines, as far as its name says."""
    return master.startswith(("local", "spark://127.", "spark://localhost:"))


def is_in_this_process(master: str) -> bool:
    """Whether tasks run in the Java that this process starts, and not in executors."""
    return _LOCAL.fullmatch(master) is not None


def start_spark(master: str | None = None) -> SparkSession:
    """The running session, or one that ends with this process: for a prompt or a notebook.

    Raises MissingPackage, MissingJava and MasterUnreachable.
    """
    stack = ExitStack()
    session = stack.enter_context(spark_session(master))
    atexit.register(stack.close)
    return session


@contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """The running session, or one of its own that is stopped at the end, with its Java.

    Raises MissingPackage, MissingJava and MasterUnreachable.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        sentence = f"{missing_package(error)}, or export with --engine local"
        raise MissingPackage(sentence) from error
    if SparkContext._active_spark_context is not None:
        # Not getActiveSession, which knows those of this thread alone.
        yield SparkSession.builder.getOrCreate()
        return
    if _SUBMITTED in os.environ:
        # spark-submit has started Java, and ends it; it says which master that is.
        submitted = _session(master, _SQL_SETTINGS)
        try:
            yield submitted
        finally:
            with uninterrupted():
                submitted.stop()
        return
    scratch = Path(tempfile.mkdtemp(prefix="hyperbloom-spark-"))
    is_first = SparkContext._gateway is None
    if is_first:
        # What it logs of a Java that has ended is a stack trace; what matters of it is raised.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        logging.getLogger().addFilter(_is_not_of_py4j)
    try:
        try:
            session = _start(resolve_master(master, os.environ), scratch)
        except BaseException:
            # One that is told to end while it starts complains of it.
            _kill_java()
            raise
        try:
            yield session
        finally:
            with uninterrupted():
                session.stop()
    finally:
        with uninterrupted():
            if is_first:
                _end_java()
            shutil.rmtree(scratch, ignore_errors=True)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """For the root's logger, by which py4j tells some of its errors."""
    return Path(record.pathname).parent.name != "py4j"


def _end_java() -> None:
    """End the Java process that pyspark started, and wait for it.

    By itself it ends some seconds after this process, and nothing should outlive a command.
    """
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is None:
        return
    SparkContext._gateway = SparkContext._jvm = None
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is None:
        return
    # It ends when its standard input does.
    process.stdin.close()
    try:
        process.wait(_JAVA_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(master: str, scratch: Path) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    os.environ["JAVA_HOME"] = os.fspath(find_java(os.environ, scratch).home)
    # Without these, workers take whatever python3 is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = _settings(master, scratch)
    if is_on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    try:
        # An interrupt waits until Java runs, a second or two: before that nobody knows of it.
        waited_for(lambda: SparkContext._ensure_initialized(conf=conf))
    except PySparkRuntimeError as error:
        raise MissingJava(
            f"Spark's Java in {os.environ['JAVA_HOME']} does not start; try it with `java -version`"
        ) from error
    with deferred():
        _check_standalone(master, SparkContext._jvm)
    try:
        session = waited_for(lambda: _session(master, settings), end=_kill_java)
        if not is_in_this_process(master):
            Executors(session.sparkContext).send_package()
    except Exception as error:
        raise MasterUnreachable(
            f"no session on the Spark master {master}: {one_sentence(error)}"
        ) from error
    return session


def _session(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder: SparkSession.Builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _kill_java() -> None:
    """End it at once, though it starts, or another thread waits for an answer of it."""
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


def _check_standalone(master: str, jvm: Any) -> None:
    """Ask whether one of a standalone cluster's masters answers: Spark itself takes a minute."""
    found = _STANDALONE.fullmatch(master)
    if found is None:
        return
    for address in found[1].split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise MasterUnreachable(f"{master} is no Spark master; write spark://HOST:PORT")
        socket = jvm.java.net.Socket()
        try:
            socket.connect(
                jvm.java.net.InetSocketAddress(host.strip("[]"), int(port)), _CONNECT_MILLISECONDS
            )
        except Exception:  # noqa: S112  # whatever Java says of it, the next one may answer
            continue
        finally:
            socket.close()
        return
    raise MasterUnreachable(f"no Spark master answers at {master}; is it running?")


def one_sentence(error: Exception) -> str:
    """Of what Java or Python said the line that says what, without where."""
    text = str(error).partition("JVM stacktrace")[0]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if _TRACEBACK in text:
        return lines[-1]
    for line in lines:
        if not line.startswith(("at ", "An error occurred while calling")):
            return line.removeprefix(": ")
    return type(error).__name__
