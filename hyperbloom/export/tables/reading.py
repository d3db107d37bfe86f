"""Reading exported tables: with Spark without a Delta jar, and as a list of files for any reader.

The tables are Delta tables: what knows Delta (deltalake, polars, Spark with its jar) reads them as
they are. What does not is given the files that the newest commit names.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hyperbloom.export.errors import TableUnusable
from hyperbloom.export.tables.delta import OpenTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GLOB: Final = re.compile(r"([\\{}\[\]*?])")

__all__ = ["current_files", "open_table", "read"]


def open_table(path: str | Path) -> OpenTable:
    """A table by its folder, such as DIR/values; TableUnusable if there is none."""
    folder = Path(path).absolute()
    try:
        found = OpenTable.find(folder.parent, folder.name)
    except KeyError:
        found = None
    if found is None:
        raise TableUnusable(f"there is no table of an export in {folder}; name one, as DIR/values")
    return found


def current_files(path: str | Path) -> list[str]:
    """The Parquet files that the table's newest commit names.

    Their partition columns are in their folders' names (`hive_partitioning` in duckdb). Those from
    before an upgrade may lack columns, which are null there (`union_by_name`).
    """
    table = open_table(path)
    return [str(table.folder / file.path) for file in table.files()]


def read(spark: SparkSession, path: str | Path) -> DataFrame:
    """The table in this folder, such as DIR/values, as its newest commit has it.

    The version is settled now: what is committed later is not in the frame. Raises TableUnusable.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    table = open_table(path)
    schema = from_arrow_schema(table.columns)
    # To Spark a path is a pattern.
    folder = _GLOB.sub(r"\\\1", str(table.folder))
    files = [f"{folder}/{file.path}" for file in table.files()]
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", str(table.folder))
    return reader.parquet(*files).select(*table.columns.names)
