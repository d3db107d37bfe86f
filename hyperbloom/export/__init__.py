"""Snapshots to tables that Spark and others read: the nightly export and a Spark data source.

Needs the extra: pip install 'hyperbloom[export]'.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hyperbloom.export.datasource import HyperbloomDataSource, register
    from hyperbloom.export.errors import ExportError
    from hyperbloom.export.job import ExportReport, export_snapshots
    from hyperbloom.export.reading import current_files, read
    from hyperbloom.export.spark import spark_session

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

_MODULES = {
    "ExportError": "errors",
    "ExportReport": "job",
    "HyperbloomDataSource": "datasource",
    "current_files": "reading",
    "export_snapshots": "job",
    "read": "reading",
    "register": "datasource",
    "spark_session": "spark",
}


def __getattr__(name: str) -> Any:
    # Lazily, for a worker that only writes files needs no pyspark.sql, and errors no pyarrow.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
