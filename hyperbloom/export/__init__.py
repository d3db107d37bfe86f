"""Snapshots to tables that Spark and others read: the nightly export and a Spark data source.

Needs the extra `export`; what is Spark's, `spark` too: pip install 'hyperbloom[export,spark]'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hyperbloom.export.errors import missing_package

if TYPE_CHECKING:
    from hyperbloom.export.append import append_batch
    from hyperbloom.export.engines.choice import Engines
    from hyperbloom.export.engines.spark_session import spark_session, start_spark
    from hyperbloom.export.errors import ExportError
    from hyperbloom.export.job import ExportReport, export_snapshots
    from hyperbloom.export.source.data_source import HyperbloomDataSource, register
    from hyperbloom.export.tables.reading import current_files, read

__all__ = [
    "Engines",
    "ExportError",
    "ExportReport",
    "HyperbloomDataSource",
    "append_batch",
    "current_files",
    "export_snapshots",
    "read",
    "register",
    "spark_session",
    "start_spark",
]


def __getattr__(name: str) -> Any:
    # When it is asked for: a worker that only writes files needs no pyspark.sql, and errors no
    # pyarrow. MissingPackage for one whose extra is not installed.
    try:
        return _part(name)
    except ModuleNotFoundError as error:
        raise missing_package(error) from error


def _part(name: str) -> Any:
    if name == "ExportError":
        from hyperbloom.export import errors

        return getattr(errors, name)
    if name == "Engines":
        from hyperbloom.export.engines import choice

        return getattr(choice, name)
    if name in ("ExportReport", "export_snapshots"):
        from hyperbloom.export import job

        return getattr(job, name)
    if name in ("current_files", "read"):
        from hyperbloom.export.tables import reading

        return getattr(reading, name)
    if name in ("HyperbloomDataSource", "register"):
        from hyperbloom.export.source import data_source

        return getattr(data_source, name)
    if name == "append_batch":
        from hyperbloom.export import append

        return getattr(append, name)
    if name in ("spark_session", "start_spark"):
        from hyperbloom.export.engines import spark_session

        return getattr(spark_session, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
