"""Tables as Delta logs: files are part of a table once one commit names them, all or none.

A Delta table is a folder of Parquet files and a log of numbered JSON files, each made in one step.
A commit adds files, removes others and carries application transactions, pairs of a name and a
number of which the log keeps the latest. What of a node is in a table is kept there, in the same
commit as the files, so that the two cannot come apart (Delta protocol, "Transaction Identifiers").
The log is written by deltalake; no Spark and no jar is needed for it.

A commit also brings the table's columns up to this release (schema.py), in the same step: its rows
are read with all their columns, or not at all.
"""

from __future__ import annotations

import datetime as dt
import json
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import pyarrow as pa

from hyperbloom import __version__
from hyperbloom.export.errors import ExportError, TableUnusable, missing_package
from hyperbloom.export.places.folder import Folder
from hyperbloom.export.places.place import Place
from hyperbloom.export.tables.files import FileFact
from hyperbloom.export.tables.schema import TABLES, OtherColumns, Table, merged

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable, Transaction

__all__ = [
    "METADATA",
    "Compaction",
    "FeedMark",
    "ListedFile",
    "OpenTable",
]

METADATA: Final = "hyperbloom"
"""The name under which a commit says which snapshots it is from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedMark:
    """What of a node's feed a table holds: up to which number, how many rows, and of which life.

    ``generation`` and ``anchor`` tell whether a later snapshot goes on from there (snapshots.py),
    ``forgotten`` up to which note of forgotten values. ``note_anchor`` tells whether all of it can
    be relied on. These two are 0, or of an earlier moment, where an earlier release wrote last.
    """

    top_seq: int
    rows: int
    generation: int
    anchor: int
    forgotten: int = 0
    note_anchor: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file that the table's current version names.

    ``days`` are the first and the last of its rows, where the table's statistics say them.
    ``least_seq`` and ``most_seq`` are the bounds of its rows' numbers, None where none are kept.
    """

    path: str
    size: int
    rows: int
    partition: dict[str, str]
    days: tuple[dt.date, dt.date] | None = None
    least_seq: int | None = None
    most_seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """Files before and after a compaction."""

    removed: int
    added: int


def _deltalake() -> Any:
    try:
        import deltalake
    except ImportError as error:
        raise missing_package(error) from error
    return deltalake


class OpenTable:
    """One table of an export, at the version found when it was opened.

    ``table`` has this release's columns, cut as the log says that the table is.
    Every method may raise TableUnusable, ExportFull, ExportConflict or StoreUnreachable.
    """

    def __init__(self, target: Place, table: Table, delta: DeltaTable) -> None:
        self.table = table
        self.place = target / table.name
        self._delta = delta

    @classmethod
    def find(
        cls, target: Place, name: str, *, tables: Mapping[str, Table] = TABLES
    ) -> OpenTable | None:
        """The table of that name below ``target``, None if there is none yet.

        ``tables`` are those of a release: this one's.
        """
        deltalake = _deltalake()
        place = target / name
        try:
            delta = deltalake.DeltaTable(place.uri, storage_options=place.options)
            table = tables[name].cut_by(tuple(delta.metadata().partition_columns))
            found = cls(target, table, delta)
            merged(found.columns, table)
        except deltalake.exceptions.TableNotFoundError:
            return None
        except OtherColumns as error:
            raise TableUnusable(
                f"the table {place} has other columns than an export's: {error}; "
                "name another folder, or use the release that wrote it"
            ) from error
        except Exception as error:
            raise place.failed(error) from error
        return found

    @classmethod
    def ensure(cls, target: Place, name: str, *, tables: Mapping[str, Table] = TABLES) -> OpenTable:
        """The same; an empty one is made if there is none."""
        found = cls.find(target, name, tables=tables)
        if found is not None:
            return found
        table, deltalake = tables[name], _deltalake()
        place = target / name
        try:
            place.make()
            delta = deltalake.DeltaTable.create(
                place.uri,
                storage_options=place.options,
                schema=table.schema,
                partition_by=list(table.partition_by),
                mode="ignore",
                name=name,
                configuration={"delta.checkpointInterval": "50", **dict(table.configuration)},
                # Tried again behind another's, it would be made a second time on top.
                commit_properties=deltalake.CommitProperties(max_commit_retries=0),
            )
        except deltalake.exceptions.CommitFailedError as error:
            made = cls.find(target, name, tables=tables)
            if made is None:
                raise place.failed(error) from error
            return made
        except Exception as error:
            raise place.failed(error) from error
        return cls(target, table, delta)

    @property
    def columns(self) -> pa.Schema:
        """The columns of this version, with their comments; another release's may differ."""
        return pa.schema(self._delta.schema().to_arrow())

    @property
    def next_columns(self) -> pa.Schema:
        """The columns that the next commit leaves."""
        return merged(self.columns, self.table)

    @property
    def version(self) -> int:
        """The number of the commit that this is."""
        return self._delta.version()

    def files(self) -> list[ListedFile]:
        """The files of this version, in the order of their paths."""
        # pa.table would import pandas, to see whether it is a frame of that: 0.16 s.
        found = pa.RecordBatchReader.from_stream(self._delta.get_add_actions(flatten=True))
        actions = found.read_all().to_pylist()
        keys = self.table.partition_by
        return sorted(
            (
                ListedFile(
                    path=action["path"],
                    size=action["size_bytes"],
                    rows=action["num_records"] or 0,
                    partition={key: str(action[f"partition.{key}"]) for key in keys},
                    days=_days(action),
                    least_seq=action.get("min.seq"),
                    most_seq=action.get("max.seq"),
                )
                for action in actions
            ),
            key=lambda file: file.path,
        )

    # What of a node is in it

    def mark(self, node: str, feed: bytes) -> FeedMark | None:
        """What it holds of this feed of this node; None for nothing."""
        read = self._delta.transaction_version
        numbers = {part: read(f"{METADATA}.{node}.{feed.hex()}.{part}") for part in _MARK_PARTS}
        if any(numbers[part] is None for part in _FIRST_MARK_PARTS):
            return None
        return FeedMark(**{part: number or 0 for part, number in numbers.items()})

    def rows_of(self, node: str) -> int | None:
        """How many rows of the node it was left with; None where that is not known."""
        rows, at = (
            self._delta.transaction_version(f"{METADATA}.{node}.{part}")
            for part in ("rows", "rows_at")
        )
        return rows if at == self.taken_at(node) else None

    def taken_at(self, node: str) -> int | None:
        """When the newest snapshot of the node in it was taken (µs)."""
        return self._delta.transaction_version(f"{METADATA}.{node}.taken_at")

    def source_version(self) -> int | None:
        """For a report: the version of `values` that it was made from."""
        return self._delta.transaction_version(f"{METADATA}.source")

    def number(self, name: str) -> int | None:
        """A number that commits have set (`numbers`), without our prefix; None if none has."""
        return self._delta.transaction_version(f"{METADATA}.{name}")

    @property
    def is_streamed(self) -> bool:
        """Whether streaming queries append to it (append.py), and exports therefore must not."""
        return self.number("stream") is not None

    # Changing it

    def commit(
        self,
        facts: Sequence[FileFact],
        *,
        replaced: Iterable[ListedFile] = (),
        numbers: Mapping[str, int] = MappingProxyType({}),
        metadata: Mapping[str, Any] | None = None,
        rearranges: bool = False,
    ) -> int:
        """Name new files, un-name ``replaced`` ones and set numbers, all at once; the new version.

        ``numbers`` are application transactions by name, without our prefix. A commit that
        ``rearranges`` has the replaced files' rows in the new ones, and changes no columns: who
        follows the table may pass it over. Columns and comments
        that the table lacks come with the same commit, if ``replaced`` are all files of some nodes
        (of the table, where it is not cut), or none. If not, they come with one before it.
        """
        deltalake = _deltalake()
        now = int(time.time() * 1000)
        additions = [
            deltalake.transaction.AddAction(
                fact.path, fact.size, fact.partition, now, not rearranges, fact.stats
            )
            for fact in facts
        ]
        properties = deltalake.CommitProperties(
            custom_metadata=None if metadata is None else {METADATA: json.dumps(metadata)},
            max_commit_retries=0,
            app_transactions=self._transactions(numbers),
        )
        try:
            self.place.keep_names("..", ".", *_folders_around(fact.path for fact in facts))
            self._change(additions, list(replaced), now, properties, rearranges=rearranges)
            self.place.keep_names("_delta_log")
        except Exception as error:
            raise self.place.failed(error) from error
        return self.version

    def _change(
        self,
        additions: Sequence[Any],
        gone: Sequence[ListedFile],
        now: int,
        properties: CommitProperties,
        *,
        rearranges: bool,
    ) -> None:
        deltalake = _deltalake()
        columns = self.next_columns
        only = None
        if not rearranges and not columns.equals(self.columns, check_metadata=True):
            only = self._filter_of(gone)
            if only is None:
                alone = deltalake.CommitProperties(max_commit_retries=0)
                self._write([], columns, alone, only=self._filter_of([]))
        if only is not None:
            self._write(additions, columns, properties, only=only)
            return
        removals = [
            deltalake.transaction.RemoveAction(
                file.path, not rearranges, now, file.size, dict(file.partition)
            )
            for file in gone
        ]
        self._write([*removals, *additions], columns, properties)

    def _write(
        self,
        actions: Sequence[Any],
        columns: pa.Schema,
        properties: CommitProperties,
        *,
        only: list[tuple[str, str, Any]] | None = None,
    ) -> None:
        """One commit. With ``only`` it replaces the files of these partitions, and the columns.

        deltalake changes the columns in an overwriting commit alone, and an appending one takes no
        notice of them.
        """
        self._delta.create_write_transaction(
            list(actions),
            mode="append" if only is None else "overwrite",
            schema=columns,
            partition_by=list(self.table.partition_by),
            partition_filters=only or None,
            commit_properties=properties,
        )
        self._delta.update_incremental()

    def _filter_of(self, gone: Sequence[ListedFile]) -> list[tuple[str, str, Any]] | None:
        """The partitions that hold these files and no others, as a filter; None if there is none.

        An empty filter is for all files. ValueError for some files of a table that is not cut.
        """
        paths, files = {file.path for file in gone}, self.files()
        if len(paths) == len(files):
            return []
        if not self.table.partition_by:
            raise ValueError("it is not cut, so its columns change when all its files are replaced")
        cut_by = self.table.partition_by[0]
        cuts = {file.partition[cut_by] for file in gone}
        if paths != {file.path for file in files if file.partition[cut_by] in cuts}:
            return None
        return [(cut_by, "in", sorted(cuts) or [_NO_PARTITION])]

    def _transactions(self, numbers: Mapping[str, int]) -> list[Transaction]:
        deltalake = _deltalake()
        return [
            deltalake.Transaction(f"{METADATA}.{name}", number) for name, number in numbers.items()
        ]

    def compact(self, target_bytes: int) -> Compaction:
        """Join small files of the same partition up to ``target_bytes`` each."""
        deltalake = _deltalake()
        try:
            metrics = self._delta.optimize.compact(
                target_size=target_bytes,
                max_concurrent_tasks=1,
                writer_properties=deltalake.WriterProperties(
                    compression="ZSTD", compression_level=1
                ),
            )
            self.place.keep_files(
                (file.path for file in self.files()), since=time.time() - _COMPACTION_SECONDS
            )
            self.place.keep_names("_delta_log")
        except Exception as error:
            raise self.place.failed(error) from error
        return Compaction(removed=metrics["numFilesRemoved"], added=metrics["numFilesAdded"])

    def recut(
        self, partition_by: tuple[str, ...], rewrite: Callable[[], Sequence[FileFact]]
    ) -> tuple[int, int]:
        """Replace all files by those that ``rewrite`` makes of the same rows, cut by other columns.

        Everything else about the table stays as it is, its id as well. No call of deltalake does
        that for files which are there: so this entry of the log is written here. How many files
        were replaced, and by how many.
        """
        place, files = self.place, self.files()
        if not isinstance(place, Folder):
            raise ExportError(
                f"{place} is at an object store, where this cannot be done without losing what "
                "somebody else commits meanwhile; it is as it was"
            )
        if self._delta.protocol() != _PROTOCOL:
            raise TableUnusable(f"{place} has features that others gave it; it is as it was")
        facts = rewrite()
        entry = self._cut_entry(files, facts, partition_by)
        try:
            place.keep_names("..", ".", *_folders_around(fact.path for fact in facts))
            place.add_whole(f"_delta_log/{self.version + 1:020}.json", entry)
            self._delta.update_incremental()
        except Exception as error:
            raise place.failed(error) from error
        self.table = self.table.cut_by(partition_by)
        return len(files), len(facts)

    def _cut_entry(
        self,
        files: Sequence[ListedFile],
        facts: Sequence[FileFact],
        partition_by: tuple[str, ...],
    ) -> bytes:
        """An entry of the log after which the table has other files and is cut by other columns.

        (Delta protocol, "Actions".)
        """
        now = int(time.time() * 1000)
        commit_info = {
            "timestamp": now,
            "operation": "WRITE",
            "operationParameters": {"mode": "Overwrite", "partitionBy": json.dumps(partition_by)},
            "engineInfo": f"hyperbloom/{__version__}",
            "readVersion": self.version,
        }
        actions: list[dict[str, Any]] = [
            {"commitInfo": commit_info},
            {"metaData": self._metadata(partition_by)},
        ]
        for file in files:
            removal = _described(file.path, file.size, file.partition)
            removal |= {"extendedFileMetadata": True, "deletionTimestamp": now}
            actions.append({"remove": removal})
        for fact in facts:
            addition = _described(fact.path, fact.size, fact.partition)
            addition |= {"modificationTime": now, "stats": fact.stats}
            actions.append({"add": addition})
        return b"".join(json.dumps(action).encode() + b"\n" for action in actions)

    def _metadata(self, partition_by: tuple[str, ...]) -> dict[str, Any]:
        """The table as the log describes it, but cut by these columns."""
        found = self._delta.metadata()
        return {
            "id": found.id,
            "name": found.name,
            "description": found.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self._delta.schema().to_json(),
            "partitionColumns": list(partition_by),
            "createdTime": found.created_time,
            "configuration": found.configuration,
        }

    @contextmanager
    def new_files(self) -> Iterator[str]:
        """A beginning for the names of new files, which are removed if the block fails."""
        name = f"part-{uuid.uuid4().hex[:8]}"
        try:
            yield name
        except BaseException:
            # A Ctrl-C that came during a commit is raised behind it: the log is asked anew.
            with suppress(ExportError):
                found = OpenTable.find(self.place.parent, self.place.name)
                if found is not None:
                    found.remove_unnamed(name)
            raise

    def vacuum(self, keep_hours: int, *, dry_run: bool) -> list[str]:
        """Remove files that no commit names any more, or never did, older than ``keep_hours``."""
        try:
            return self._delta.vacuum(
                keep_hours, dry_run=dry_run, enforce_retention_duration=False, full=True
            )
        except Exception as error:
            raise self.place.failed(error) from error

    def remove_unnamed(self, name: str, known: Iterable[str] = ()) -> None:
        """Remove the files whose names begin so and that the table has not: ``known``, and others.

        Others are found by their age; a store whose clock is ahead shows them later.
        """
        try:
            named = {file.path for file in self.files()}
            for path in {*known, *self.vacuum(0, dry_run=True)} - named:
                if PurePosixPath(path).name.startswith(f"{name}-"):
                    self.place.remove(path)
        except OSError as error:
            raise self.place.failed(error) from error

    def history(self) -> list[dict[str, Any]]:
        """The commits that are still told of, newest first."""
        try:
            return list(self._delta.history())
        except Exception as error:
            raise self.place.failed(error) from error


def _days(action: Mapping[str, Any]) -> tuple[dt.date, dt.date] | None:
    date = action.get("partition.date")
    if date is not None:
        return date, date
    first, last = (action.get(f"{end}.received_at") for end in ("min", "max"))
    return (first.date(), last.date()) if first and last else None


_MARK_PARTS: Final = tuple(field.name for field in fields(FeedMark))
_FIRST_MARK_PARTS: Final = ("top_seq", "rows", "generation", "anchor")
"""Those that every release writes."""
_COMPACTION_SECONDS: Final = 3_600
_NO_PARTITION: Final = "none"
"""No node's key, which is hex."""


_PROTOCOL: Final = (1, 2, None, None)
"""What deltalake says of a table of ours: no feature of which a file's rows may depend."""


def _described(path: str, size: int, partition: Mapping[str, str]) -> dict[str, Any]:
    """A file in an entry that adds or removes it, and changes no rows."""
    return {
        "path": quote(path, safe="/="),
        "partitionValues": dict(partition),
        "size": size,
        "dataChange": False,
    }


def _folders_around(paths: Iterable[str]) -> set[str]:
    """The folders that hold those of these files; who wrote a file has made its own name last."""
    return {str(around) for path in paths for around in PurePosixPath(path).parent.parents}
