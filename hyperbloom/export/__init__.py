"""Snapshots to tables that Spark and others read: the nightly export and a Spark data source.

Needs the extra: pip install 'hyperbloom[export]'.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperbloom.export.datasource import HyperbloomDataSource, register
    from hyperbloom.export.errors import ExportError
    from hyperbloom.export.job import ExportReport, export_snapshots
    from hyperbloom.export.spark import spark_session
    from hyperbloom.export.tables.reading import current_files, read

__all__ = [
    "ExportError",
    "ExportReport",
    "HyperbloomDataSource",
    "current_files",
    "export_snapshots",
    "read",
    "register",
    "spark_session",
]


def __getattr__(name: str) -> Any:
    # Lazily, for a worker that only writes files needs no pyspark.sql, and errors no pyarrow.
    if name == "ExportError":
        from hyperbloom.export import errors

        return getattr(errors, name)
    if name in ("ExportReport", "export_snapshots"):
        from hyperbloom.export import job

        return getattr(job, name)
    if name in ("current_files", "read"):
        from hyperbloom.export.tables import reading

        return getattr(reading, name)
    if name in ("HyperbloomDataSource", "register"):
        from hyperbloom.export import datasource

        return getattr(datasource, name)
    if name == "spark_session":
        from hyperbloom.export import spark

        return getattr(spark, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
