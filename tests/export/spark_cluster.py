"""A Spark cluster of its own on 127.0.0.1: the standalone master of pyspark, and workers.

Its executors run a Python that has what docs/clusters.md says executors need, and not hyperbloom.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sysconfig
import time
import urllib.request
import venv
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from export_processes import of_session, state_of
from packaging.requirements import Requirement

from hyperbloom.export.engines.java import find_java

PAGE = Path(__file__).parents[2] / "docs" / "clusters.md"
SECONDS = 120
#: These end soon: their code is not worth the better of Java's compilers.
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


#: In an executor's Python: it stands still before it makes the file that its worker's folder says.
STOPPING = """
import os, signal, sys

made = 0

def stop(event, arguments):
    global made
    if event != "open" or arguments[1] != "x":
        return
    try:
        with open(os.getcwd().partition("/work/")[0] + "/stop") as file:
            table, number = file.read().split()
    except OSError:
        return
    if f"/{table}/" in str(arguments[0]):
        made += 1
        if made == int(number):
            os.kill(os.getpid(), signal.SIGSTOP)

sys.addaudithook(stop)
"""


def wait_until(condition: Callable[[], Any], what: str) -> Any:
    """What the condition gives once it gives something."""
    end = time.monotonic() + SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, what
        time.sleep(0.02)
    return found


def needed_by_executors() -> list[str]:
    """What the page has people install for executors."""
    (line,) = re.findall(r"^pip install (lmdb .+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return [word.strip("'").partition(" ")[0] for word in re.findall(r"'[^']+'|\S+", line)]


def make_python(folder: Path, packages: Sequence[str]) -> Path:
    """An environment in which these packages, what they need, and no others are installed."""
    venv.EnvBuilder(symlinks=True).create(folder)
    place = Path(sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)}))
    (place / "stopping.py").write_text(STOPPING)
    (place / "stopping.pth").write_text("import stopping\n")
    known: set[str] = set()
    left = list(packages)
    while left:
        name = left.pop()
        if name in known:
            continue
        known.add(name)
        found = importlib.metadata.distribution(name)
        for requirement in found.requires or ():
            wanted = Requirement(requirement)
            if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
                left.append(wanted.name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            with suppress(FileExistsError):
                (place / top).symlink_to(found.locate_file(top))
    return folder / "bin" / "python"


class Daemon:
    """A master or a worker, with all that it starts."""

    def __init__(
        self, kind: str, arguments: Sequence[str], folder: Path, *, before: Sequence[str] = ()
    ) -> None:
        folder.mkdir()
        self.folder = folder
        home = Path(importlib.metadata.distribution("pyspark").locate_file("pyspark"))
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYSPARK", "SPARK", "HYPERBLOOM"))
        }
        environment |= {
            "JAVA_HOME": str(find_java(os.environ, folder).home),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_CONF_DIR": str(folder),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"{QUICK} -Dspark.master.rest.enabled=false",
        }
        with open(folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [*before, *command, "--host", "127.0.0.1", "--port", "0", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )

    def said(self, pattern: str) -> str:
        """What it says in its log, once it does."""
        return wait_until(
            lambda: re.search(pattern, (self.folder / "log").read_text()),
            f"{self.folder / 'log'}: {pattern}",
        )[1]

    def processes(self) -> list[int]:
        """It, its executors and their Pythons."""
        return of_session(self.process.pid)

    def stopped(self) -> list[int]:
        """Those of its tasks' processes that stand still."""
        return [pid for pid in self.processes() if state_of(pid) == "T"]

    def go_on(self) -> None:
        """Have its tasks go on, and stop no more."""
        (self.folder / "stop").unlink(missing_ok=True)
        for pid in self.stopped():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill(self) -> None:
        """End it and all it has started, at once."""
        while found := self.processes():
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.process.wait()


class Cluster:
    """A master and its workers, of one core each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.workers: list[Daemon] = []
        self.python = make_python(folder / "python", needed_by_executors())
        (folder / "conf").mkdir()
        self.configure()
        self._master = Daemon("master.Master", ["--webui-port", "0"], folder / "master")
        try:
            self.url = self._master.said(r"Starting Spark master at (\S+)")
            self._page = self._master.said(r"'MasterUI' on port (\d+)")
        except BaseException:
            self.close()
            raise

    def configure(self, **settings: str) -> None:
        """Spark's settings of the commands to come."""
        settings = {"spark.executor.extraJavaOptions": QUICK, "spark.executor.memory": "512m"} | {
            name.replace("_", "."): value for name, value in settings.items()
        }
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        (self._folder / "conf" / "spark-defaults.conf").write_text("".join(lines))

    def add_workers(self, count: int, *, memory: str = "1g", before: Sequence[str] = ()) -> None:
        """Start workers; ``before`` is a command that runs them."""
        for _ in range(count):
            name = f"worker{len(list(self._folder.glob('worker*')))}"
            arguments = ["--webui-port", "0", "--cores", "1", "--memory", memory]
            arguments += ["--work-dir", str(self._folder / name / "work"), self.url]
            self.workers.append(
                Daemon("worker.Worker", arguments, self._folder / name, before=before)
            )
        wait_until(self.is_whole, "the workers do not come")

    def is_whole(self) -> bool:
        """Whether all workers are there, and no others."""
        alive = [w for w in self.state()["workers"] if w["state"] == "ALIVE"]
        return len(alive) == len(self.workers)

    def add_large_worker(self, *, before: Sequence[str]) -> None:
        """Start a worker that is the only one with room for the executors to come."""
        self.add_workers(1, memory="2g", before=before)
        self.configure(spark_executor_memory="1500m")

    def kill(self, *workers: Daemon) -> None:
        """End workers with their executors."""
        for worker in workers:
            worker.kill()
            self.workers.remove(worker)

    def stop_at(self, table: str, number: int) -> None:
        """Have tasks stand still before they make so many files of this table, on any worker."""
        for worker in self.workers:
            (worker.folder / "stop").write_text(f"{table} {number}")

    def go_on_until(self, process: subprocess.Popen[str]) -> None:
        """Have tasks go on, and stop no more, until a process has ended."""

        def has_ended() -> bool:
            for worker in self.workers:
                worker.go_on()
            return process.poll() is not None

        wait_until(has_ended, "it goes on")

    def state(self) -> Any:
        """What the master tells."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=30) as answer:
            return json.load(answer)

    def applications(self) -> list[str]:
        """The names of those that run."""
        return [found["name"] for found in self.state()["activeapps"]]

    def environment(self) -> dict[str, str]:
        """For a command that uses it."""
        return {
            **os.environ,
            "MASTER": self.url,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_CONF_DIR": str(self._folder / "conf"),
            "SPARK_SUBMIT_OPTS": QUICK,
            "PYSPARK_PYTHON": str(self.python),
        }

    def close(self) -> None:
        """End all."""
        for daemon in (*self.workers, self._master):
            daemon.kill()
