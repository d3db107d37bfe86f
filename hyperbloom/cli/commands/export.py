"""Commands about exports: snapshots to tables, what is in them, keeping them small."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import click

from hyperbloom.cli.app import App, Group, exit_with, pass_app
from hyperbloom.cli.guard import GuardedCommand, ended_orderly
from hyperbloom.cli.output import say
from hyperbloom.cli.parameters import WholeNumber
from hyperbloom.exit_codes import ExitCode
from hyperbloom.units import format_moment, format_size, parse_duration

if TYPE_CHECKING:
    from pathlib import Path

    from hyperbloom.export.job import ExportReport
    from hyperbloom.export.places.place import Place

__all__ = ["export"]

_TABLES = ("values", "links", "feeds", "objects", "changes", "coverage", "provenance")
_READERS = {"owner": "their owner alone", "group": "their group, too", "all": "everybody"}
_BAR = 24
_HOUR = 3_600
_OF_EXTRAS = ("pyspark", "pyarrow", "pandas", "deltalake")
_ENGINES = {"local": "processes of this machine", "spark": "Spark"}


class ExportGroup(Group):
    """`export SNAPSHOT…` is `export run SNAPSHOT…`."""

    _OPTIONS_WITH_VALUE = ("-c", "--config", "--timeout")

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Called by click: puts in the `run` that was left out."""
        at = 0
        while at < len(args) and (args[at] == "--json" or args[at] in self._OPTIONS_WITH_VALUE):
            at += 1 if args[at] == "--json" else 2
        if at < len(args) and args[at] not in (*self.commands, *ctx.help_option_names):
            args = [*args[:at], "run", *args[at:]]
        return super().parse_args(ctx, args)


@click.group(cls=ExportGroup)
def export() -> None:
    """Export snapshots to tables that Spark, duckdb and others read.

    `hyperbloom export SNAPSHOT… --to DIR` is short for `export run`. Needs the extra:
    pip install 'hyperbloom[export]', and for Spark 'hyperbloom[export,spark]'.
    """


@contextmanager
def _extra() -> Iterator[None]:
    """Around imports of hyperbloom.export: a sentence if what it needs is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _OF_EXTRAS:
            raise
        from hyperbloom.export.errors import missing_package

        raise missing_package(error) from error


class Tables(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Names of tables between commas."""

    name = "tables"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        """Called by click."""
        if isinstance(value, tuple):
            return value
        names = _TABLES if value == "all" else tuple(filter(None, value.split(",")))
        for name in names:
            if name not in _TABLES:
                self.fail(f"no table {name!r}; there are {', '.join(_TABLES)}", param, ctx)
        return names


class Megabytes(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A number of MiB; converted to bytes."""

    name = "MiB"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Called by click."""
        try:
            count = int(value)
        except ValueError:
            count = 0
        if count < 1:
            self.fail(f"{value!r} is no whole number of MiB above 0", param, ctx)
        return count * 1024 * 1024


class TablesPlace(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Where tables are: a folder, or a URL of an object store."""

    name = "place"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        """Called by click."""
        from hyperbloom.export.errors import ExportError
        from hyperbloom.export.places.urls import place_of

        try:
            return place_of(value)
        except ExportError as error:
            self.fail(str(error), param, ctx)


def _file_size(command: Any) -> Any:
    return click.option(
        "--file-size",
        type=Megabytes(),
        default="128",
        metavar="MIB",
        show_default=True,
        help="Size that files should have, in MiB.",
    )(command)


@export.command(cls=GuardedCommand, quiet=False, timeout_option=False)
@click.argument("snapshots", metavar="SNAPSHOT…", nargs=-1, required=True)
@click.option(
    "--to",
    "target",
    required=True,
    metavar="DIR|URL",
    type=TablesPlace(),
    help="Folder of the tables, made if it is not there; or s3://BUCKET/FOLDER, gs://, abfss://.",
)
@click.option(
    "--mode",
    type=click.Choice(["incremental", "full"]),
    default="incremental",
    show_default=True,
    help="Only what is new, or all rows of these nodes anew.",
)
@click.option(
    "--tables",
    type=Tables(),
    default="values,links,feeds",
    show_default=True,
    help="Tables to bring up to date, or all; coverage and provenance are made anew each time. "
    "Left out, objects come along where a snapshot holds some, and changes once they are there.",
)
@click.option(
    "--engine",
    type=click.Choice(["auto", "local", "spark"]),
    default="auto",
    show_default=True,
    help="What does the work: processes of this machine, or Spark. auto takes Spark where a "
    "cluster is named and there is enough to do for it, and says what it took.",
)
@click.option(
    "--processes",
    type=WholeNumber(min=1),
    metavar="N",
    help="Processes of the engine local; else one for each core.",
)
@click.option(
    "--master",
    metavar="URL",
    help="Spark's master; else MASTER, spark-defaults.conf, all cores of this machine.",
)
@click.option("--verify", is_flag=True, help="Walk each snapshot first, as `verify` does.")
@click.option(
    "--share-with",
    type=click.Choice(["owner", "group", "all"]),
    default="owner",
    show_default=True,
    help="Who may read the tables, old files among them: modes 0700/0600, 0750/0640 or 0755/0644.",
)
@_file_size
@click.option(
    "--note",
    is_flag=True,
    help="When it is done, note it in the node's data folder: /metrics tells how old that is.",
)
@pass_app
def run(
    app: App,
    snapshots: tuple[str, ...],
    target: Place,
    mode: Literal["incremental", "full"],
    tables: tuple[str, ...],
    engine: Literal["auto", "local", "spark"],
    processes: int | None,
    master: str | None,
    verify: bool,
    share_with: Literal["owner", "group", "all"],
    file_size: int,
    note: bool,
) -> None:
    """Export snapshots into the tables below DIR, each value once.

    SNAPSHOT is a folder or a pattern in quotes; of several of one node the newest counts. Run
    again it finishes what was interrupted, or changes nothing. `run` may be left out.
    """
    noted = app.config.export_note if note else None
    with app.progress("exporting") as progress:
        with _extra():
            from hyperbloom.export.engines.choice import Engines
            from hyperbloom.export.job import export_snapshots
        if verify:
            _verify(app, snapshots)
        with ended_orderly():
            report = export_snapshots(
                snapshots,
                target,
                engines=Engines(wanted=engine, master=master, processes=processes),
                mode=mode,
                tables=tables,
                target_bytes=file_size,
                share_with=share_with,
                progress=lambda text, part: progress.show(_bar(part, text), at_once=part == 0.0),
            )
    if noted is not None:
        _write_note(noted)
    if engine == "auto":
        _say_choices(report)
    if report.settled:
        say(
            f"{report.settled} files and folders of earlier exports were given other modes: "
            f"readable by {_READERS[share_with]} (--share-with {share_with})"
        )
    _show_report(app, target, report)


def _write_note(path: Path) -> None:
    """The file's age is what counts; its text is for people."""
    try:
        path.write_text(f"exported {format_moment(time.time())}\n", encoding="ascii")
    except OSError as error:
        raise click.ClickException(
            f"exported, but {path} cannot be written: {error.strerror}; run it as the node's user"
        ) from None


def _bar(part: float, text: str) -> str:
    done = round(_BAR * min(1.0, part))
    return f"[{'#' * done}{'.' * (_BAR - done)}] {part:4.0%} {text}"


def _say_choices(report: ExportReport) -> None:
    said = {}
    for table in report.tables:
        if table.choice is not None:
            said[table.choice.engine] = table.choice.reason
    for engine, reason in said.items():
        say(f"engine {engine} ({_ENGINES[engine]}): {reason}")


def _verify(app: App, snapshots: tuple[str, ...]) -> None:
    from hyperbloom.export.snapshots import find_snapshots
    from hyperbloom.store.backup.verify import verify_path
    from hyperbloom.store.errors import StoreCorrupt

    for path in find_snapshots(snapshots):
        with app.progress(f"verifying {path}") as progress:
            report = verify_path(path, progress.at)
        if not report.ok:
            if app.out.as_json:
                raise StoreCorrupt(f"{path} is damaged: {'; '.join(report.problems)}")
            for problem in report.problems:
                app.out.line(f"{path}: {problem}")
            exit_with(ExitCode.STORE)


def _show_report(app: App, target: Place, report: ExportReport) -> None:
    if app.out.as_json:
        app.out.json(
            {
                "target": str(target),
                "snapshots": list(report.snapshots),
                "session_seconds": round(report.start_seconds, 3),
                "worker_peak_bytes": report.worker_peak_bytes,
                "tables": [
                    {
                        "table": table.table,
                        "version": table.version,
                        "changed": table.changed,
                        "engine": table.choice.engine if table.choice else None,
                        "rows": table.rows,
                        "replaced": table.replaced,
                        "files": table.files,
                        "bytes": table.bytes,
                        "seconds": round(table.seconds, 3),
                        "rows_per_second": round(table.rows_per_second),
                    }
                    for table in report.tables
                ],
            }
        )
        return
    number = _number(app)
    rows = [
        (
            table.table,
            "up to date" if app.out.is_terminal and not table.changed else number(table.rows),
            number(table.files),
            _size(app, table.bytes),
            f"{table.seconds:.2f}",
            number(round(table.rows_per_second)),
            str(table.version),
        )
        for table in report.tables
    ]
    app.out.table(
        ("table", "rows>", "files>", "bytes>", "seconds>", "rows/s>", "version>"), rows, empty=""
    )


def _number(app: App) -> Callable[[int], str]:
    return "{:,}".format if app.out.is_terminal else str


def _size(app: App, count: int) -> str:
    return format_size(count) if app.out.is_terminal else str(count)


@export.command(timeout_option=False)
@click.argument("target", metavar="DIR|URL", type=TablesPlace())
@pass_app
def status(app: App, target: Place) -> None:
    """Show the tables below DIR: what is committed, when, and from which snapshots."""
    with _extra():
        from hyperbloom.export.upkeep import table_statuses
    found = table_statuses(target)
    if app.out.as_json:
        app.out.json(
            {
                "tables": [
                    {
                        "table": table.table,
                        "cut": table.cut,
                        "version": table.version,
                        "rows": table.rows,
                        "files": table.files,
                        "bytes": table.bytes,
                        "committed_at": _seconds(table.committed_at),
                        "snapshots": [
                            {**snapshot, "taken_at": snapshot["taken_at"] / 1e6}
                            for snapshot in table.snapshots
                        ],
                    }
                    for table in found
                ]
            }
        )
        return
    number = _number(app)
    rows = [
        (
            table.table,
            number(table.rows),
            number(table.files),
            _size(app, table.bytes),
            str(table.version),
            _moment(_seconds(table.committed_at)),
            table.cut or "-",
        )
        for table in found
    ]
    app.out.table(
        ("table", "rows>", "files>", "bytes>", "version>", "committed", "by"), rows, empty=""
    )
    if app.out.is_terminal:
        newest = {snapshot["id"]: snapshot for table in found for snapshot in table.snapshots}
        for snapshot in newest.values():
            taken = _moment(snapshot["taken_at"] / 1e6)
            app.out.line(f"last exported: node {snapshot['node'][:12]}…, taken {taken}")


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _moment(seconds: float | None) -> str:
    return "-" if seconds is None else format_moment(seconds)


@export.command(timeout_option=False)
@click.argument("target", metavar="DIR|URL", type=TablesPlace())
@click.option(
    "--by",
    type=click.Choice(["day", "month"]),
    help="Write the table values anew, with files for each node and day, or month, unless it has "
    "them so; exports go on in the same way. By month is for nodes with little in a day.",
)
@_file_size
@pass_app
def compact(app: App, target: Place, by: Literal["day", "month"] | None, file_size: int) -> None:
    """Join the small files of the tables below DIR.

    Readers are not disturbed; the old files stay until `export vacuum`.
    """
    with _extra():
        from hyperbloom.export.upkeep import compact_tables
    begun = time.monotonic()
    with app.progress("joining files"):
        done = compact_tables(target, by=by, target_bytes=file_size)
    if app.out.as_json:
        tables = [{"table": name, "removed": c.removed, "added": c.added} for name, c in done]
        app.out.json({"tables": tables, "seconds": round(time.monotonic() - begun, 3)})
        return
    rows = [(name, str(c.removed), str(c.added)) for name, c in done]
    app.out.table(("table", "files before>", "after>"), rows, empty="")


class Hours(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """A duration in whole hours."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Called by click."""
        if isinstance(value, int):
            return value
        try:
            return round(parse_duration(value) / _HOUR)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@export.command(timeout_option=False)
@click.argument("target", metavar="DIR|URL", type=TablesPlace())
@click.option(
    "--keep",
    type=Hours(),
    default="7d",
    show_default=True,
    metavar="DURATION",
    help="Files are kept that were part of a table within this time, or are newer.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@pass_app
def vacuum(app: App, target: Place, keep: int, dry_run: bool) -> None:
    """Remove files that no table below DIR has any more, or ever had.

    Those of killed exports and of compactions. Readers at work need theirs: see --keep.
    """
    with _extra():
        from hyperbloom.export.upkeep import vacuum_tables
    with app.progress("looking for files" if dry_run else "removing files"):
        done = vacuum_tables(target, keep_hours=keep, dry_run=dry_run)
    if app.out.as_json:
        app.out.json({"dry_run": dry_run, "tables": [{"table": n, "removed": p} for n, p in done]})
        return
    rows = [(name, str(len(paths))) for name, paths in done]
    app.out.table(("table", "would be removed>" if dry_run else "removed>"), rows, empty="")
