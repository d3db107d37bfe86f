"""The data source as Spark knows it.

    from hyperbloom.export import register
    register(spark)
    rows = spark.read.format("hyperbloom").option("path", snapshot).load()
    news = spark.readStream.format("hyperbloom").option("path", snapshots).load()

Both have the columns of the table `values`. The options of the one are those of `SnapshotReader`,
of the other those of `StreamReader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from hyperbloom.export.errors import MissingPackage
from hyperbloom.export.source.snapshot_reader import SnapshotReader
from hyperbloom.export.tables.schema import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HyperbloomDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Make the format "hyperbloom" known, and its option `pushdown` possible."""
    spark.dataSource.register(HyperbloomDataSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


class HyperbloomDataSource(DataSource):
    """The values of snapshots, or of a running node, as rows of the table `values`."""

    @classmethod
    def name(cls) -> str:
        """Called by Spark."""
        return "hyperbloom"

    def schema(self) -> StructType:
        """Called by Spark."""
        return from_arrow_schema(TABLES["values"].schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called by Spark for `spark.read`."""
        return SnapshotReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called by Spark for `spark.readStream`; MissingPackage for a PySpark that is too old."""
        try:
            from hyperbloom.export.source.stream_reader import StreamReader
        except ImportError as error:
            raise MissingPackage(
                "to follow a node takes PySpark 4.2 or newer; install it with: "
                "pip install --upgrade pyspark"
            ) from error
        return StreamReader(self.options)
