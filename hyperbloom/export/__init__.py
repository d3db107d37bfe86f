"""Snapshots to tables that Spark and others read: the nightly export and a Spark data source.

Needs the extra `export`; what is Spark's, `spark` too: pip install 'hyperbloom[export,spark]'.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from hyperbloom.export.errors import missing_package

if TYPE_CHECKING:
    from hyperbloom.export.datasource import HyperbloomDataSource, register
    from hyperbloom.export.engines.choice import Engines
    from hyperbloom.export.engines.spark_session import spark_session, start_spark
    from hyperbloom.export.errors import ExportError
    from hyperbloom.export.job import ExportReport, export_snapshots
    from hyperbloom.export.tables.reading import current_files, read

__all__ = [
    "Engines",
    "ExportError",
    "ExportReport",
    "HyperbloomDataSource",
    "current_files",
    "export_snapshots",
    "read",
    "register",
    "spark_session",
    "start_spark",
]

#: Read when they are asked for: a worker that only writes files needs no pyspark.sql, and errors no
#: pyarrow. MissingPackage for one whose extra is not installed.
_MODULES = {
    "Engines": "hyperbloom.export.engines.choice",
    "ExportError": "hyperbloom.export.errors",
    "ExportReport": "hyperbloom.export.job",
    "HyperbloomDataSource": "hyperbloom.export.datasource",
    "current_files": "hyperbloom.export.tables.reading",
    "export_snapshots": "hyperbloom.export.job",
    "read": "hyperbloom.export.tables.reading",
    "register": "hyperbloom.export.datasource",
    "spark_session": "hyperbloom.export.engines.spark_session",
    "start_spark": "hyperbloom.export.engines.spark_session",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
