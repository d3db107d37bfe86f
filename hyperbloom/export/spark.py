"""A Spark session for an export, and jobs whose tasks write files themselves.

Spark's part is to schedule: a job is a range of task numbers through mapInArrow, and each task
writes its files with pyarrow (tasks.py). On one machine that takes half the time of a single
process; on a cluster the same job runs on the executors.

On a local master nothing listens but on 127.0.0.1, and there is no status page. Another master is
taken as Spark's own settings say, and its executors are sent this package.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hyperbloom.export.errors import (
    ExportError,
    ExportFull,
    MasterUnreachable,
    MissingJava,
    MissingPackage,
)
from hyperbloom.export.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "TaskProgress",
    "collect_answers",
    "cores_of",
    "one_sentence",
    "resolve_master",
    "spark_session",
]

TaskProgress = Callable[[int, int], None]
"""Called now and then with the number of tasks done and of all."""

DEFAULT_MASTER: Final = "local[*]"
_POLL_SECONDS: Final = 0.1
_CANCEL_SECONDS: Final = 10
_JAVA_END_SECONDS: Final = 20
_CONNECT_MILLISECONDS: Final = 5_000
_TRACEBACK: Final = "Traceback (most recent call last)"
_LOCAL = re.compile(r"local(\[[^\]]*\])?")
_STANDALONE = re.compile(r"spark://(.+)")

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
        "spark.app.name": "hyperbloom export",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log_file.as_uri()}",
    }
    if _is_on_this_machine(master):
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


def _is_on_this_machine(master: str) -> bool:
    return master.startswith(("local", "spark://127.", "spark://localhost:"))


@contextmanager
def spark_session(master: str | None = None) -> Iterator[SparkSession]:
    """The running session, or one of its own that is stopped at the end, with its Java.

    Raises MissingPackage, MissingJava and MasterUnreachable.
    """
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingPackage(
            f"{error.name} is not installed; install it with: pip install 'hyperbloom[export]'"
        ) from error
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    scratch = Path(tempfile.mkdtemp(prefix="hyperbloom-spark-"))
    is_first = SparkContext._gateway is None
    try:
        session = _start(resolve_master(master, os.environ), scratch)
        try:
            yield session
        finally:
            session.stop()
    finally:
        if is_first:
            _end_java()
        shutil.rmtree(scratch, ignore_errors=True)


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
    from pyspark.sql import SparkSession

    os.environ["JAVA_HOME"] = os.fspath(find_java(os.environ, scratch).home)
    # Without these, workers take whatever python3 is on the PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = _settings(master, scratch)
    if _is_on_this_machine(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    try:
        SparkContext._ensure_initialized(conf=conf)
    except PySparkRuntimeError as error:
        raise MissingJava(
            f"Spark's Java in {os.environ['JAVA_HOME']} does not start; try it with `java -version`"
        ) from error
    _check_standalone(master, SparkContext._jvm)
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    interrupt = signal.getsignal(signal.SIGINT)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        raise MasterUnreachable(
            f"no session on the Spark master {master}: {one_sentence(error)}"
        ) from error
    finally:
        # Spark's own would talk to Java in the middle of another talk; see collect_answers.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt)
    if not _LOCAL.fullmatch(master):
        session.sparkContext.addPyFile(str(_package_archive(scratch)))
    return session


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


def _package_archive(scratch: Path) -> Path:
    """This package as an archive for executors, which have its dependencies but not itself."""
    package = Path(__file__).resolve().parent.parent
    return Path(
        shutil.make_archive(
            str(scratch / "hyperbloom"), "zip", root_dir=package.parent, base_dir=package.name
        )
    )


def cores_of(session: SparkSession) -> int:
    """Tasks that run at one time."""
    return max(1, session.sparkContext.defaultParallelism)


def collect_answers(
    session: SparkSession, frame: DataFrame, progress: TaskProgress | None
) -> list[str]:
    """Run a job whose rows are answers; an error of Spark's own becomes one sentence.

    The job is waited for in a thread of its own, so that this one can show progress, and Ctrl-C
    does not strike in the middle of a talk with Java.
    """
    context = session.sparkContext
    group = f"hyperbloom-{uuid.uuid4().hex[:8]}"
    outcome: list[list[str] | Exception] = []

    def work() -> None:
        # A job group is a thread's.
        context.setJobGroup(group, "hyperbloom export", interruptOnCancel=True)
        try:
            outcome.append([row[0] for row in frame.collect()])
        except Exception as error:
            outcome.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    try:
        _wait(worker, context.statusTracker(), group, progress)
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        worker.join(_CANCEL_SECONDS)
        raise
    (result,) = outcome
    if isinstance(result, Exception):
        raise _failed_job(result) from result
    return result


def _wait(
    worker: threading.Thread, tracker: Any, group: str, progress: TaskProgress | None
) -> None:
    """Until the worker has ended; tells how many tasks are done as that becomes more."""
    most = -1
    while worker.is_alive():
        worker.join(_POLL_SECONDS)
        if progress is None:
            continue
        finished, total = _count_tasks(tracker, group)
        # Later stages become known as earlier ones end, so the part that is done may shrink.
        if total and finished > most:
            most = finished
            progress(finished, total)


def _count_tasks(tracker: Any, group: str) -> tuple[int, int]:
    finished = total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            stage_info = tracker.getStageInfo(stage)
            if stage_info is not None:
                finished += stage_info.numCompletedTasks
                total += stage_info.numTasks
    return finished, total


def _failed_job(error: Exception) -> ExportError:
    text = str(error)
    if "No space left on device" in text:
        return ExportFull(
            "no room for Spark's own files (spark.local.dir, else the temporary folder); "
            "the tables are as they were, make room and try again"
        )
    if "Python worker exited unexpectedly" in text:
        return ExportError(
            "a Python worker ended at once: out of memory, or a damaged snapshot "
            "(`hyperbloom verify SNAPSHOT` tells); the tables are as they were"
        )
    return ExportError(f"the Spark job failed, the tables are as they were: {one_sentence(error)}")


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
