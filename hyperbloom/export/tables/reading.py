"""Reading exported tables: with Spark without a Delta jar, and as a list of files for any reader.

The tables are Delta tables: what knows Delta (deltalake, polars, Spark with its jar) reads them as
they are. What does not is given the files that the newest commit names.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from hyperbloom.export.errors import TableUnusable
from hyperbloom.export.places.place import Place
from hyperbloom.export.places.urls import Where, place_of
from hyperbloom.export.tables.delta import ListedFile, OpenTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_GLOB: Final = re.compile(r"([\\{}\[\]*?])")
_BATCH_ROWS: Final = 8_192
_READ_BYTES: Final = 1024 * 1024
_TASKS: Final = 32
_TASK_BYTES: Final = 64 * 1024 * 1024

__all__ = ["current_files", "open_table", "read", "read_rows"]


def open_table(where: Where) -> OpenTable:
    """A table by its folder or URL, such as DIR/values; TableUnusable if there is none."""
    place = place_of(where)
    try:
        found = OpenTable.find(place.parent, place.name)
    except KeyError:
        found = None
    if found is None:
        raise TableUnusable(f"there is no table of an export in {place}; name one, as DIR/values")
    return found


def current_files(where: Where) -> list[str]:
    """The Parquet files that the table's newest commit names, as paths or URLs.

    Their partition columns are in their folders' names (`hive_partitioning` in duckdb). Those from
    before an upgrade may lack columns, which are null there (`union_by_name`).
    """
    table = open_table(where)
    return [table.place.location(file.path) for file in table.files()]


def read(spark: SparkSession, where: Where) -> DataFrame:
    """The table in this folder or at this URL, such as DIR/values, as its newest commit has it.

    The version is settled now: what is committed later is not in the frame. Spark's own reader of
    object stores is a jar that it does not come with, so what is there is read by the tasks'
    Python, with all its columns. Raises TableUnusable and StoreUnreachable.
    """
    from pyspark.sql import functions as sql

    table = open_table(where)
    files = table.files()
    schema = _schema(table.columns)
    if not files:
        return spark.createDataFrame([], schema)
    if table.place.is_mounted:
        # To Spark a path is a pattern, and on a cluster one of HDFS where nothing is said.
        folder = "file://" + _GLOB.sub(r"\\\1", str(table.place))
        reader = spark.read.schema(schema).option("basePath", f"file://{table.place}")
        paths = [f"{folder}/{file.path}" for file in files]
        # It forgets what was said of the columns that the table is cut by.
        said = (sql.col(field.name).alias(field.name, metadata=field.metadata) for field in schema)
        return reader.parquet(*paths).select(*said)
    return _read_by_tasks(spark, table, files)


def _schema(columns: pa.Schema) -> StructType:
    """As Spark has it, with the columns' comments."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(columns)
    for field, column in zip(schema.fields, columns, strict=True):
        comment = (column.metadata or {}).get(b"comment")
        if comment is not None:
            field.metadata = {"comment": comment.decode()}
    return schema


def _read_by_tasks(spark: SparkSession, table: OpenTable, files: Sequence[ListedFile]) -> DataFrame:
    place, columns = table.place, table.columns
    count = min(len(files), max(_TASKS, math.ceil(sum(file.size for file in files) / _TASK_BYTES)))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for file in files[number::count]:
                    yield from read_rows(place, file, columns)

    return spark.range(0, count, 1, count).mapInArrow(work, _schema(columns))


def read_rows(place: Place, file: ListedFile, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """A file's rows with all columns of its table: those of its folders' names, null for others.

    Raises what `Place.failed` gives.
    """
    try:
        with pq.ParquetFile(place.open(file.path), buffer_size=_READ_BYTES) as opened:
            for number in range(opened.num_row_groups):
                for batch in opened.iter_batches(_BATCH_ROWS, [number], use_threads=False):
                    arrays = [_column(batch, field, file.partition) for field in columns]
                    yield pa.RecordBatch.from_arrays(arrays, schema=columns)
    except OSError as error:
        raise place.failed(error) from error


def _column(batch: pa.RecordBatch, field: pa.Field, partition: Mapping[str, str]) -> pa.Array:
    if field.name in partition:
        value = pa.scalar(partition[field.name]).cast(field.type)
        return pa.repeat(value, batch.num_rows)
    if field.name in batch.schema.names:
        return batch.column(field.name).cast(field.type)
    return pa.nulls(batch.num_rows, field.type)
