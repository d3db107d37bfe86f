"""What can go wrong with an export, each as its own type and as one sentence that says what to do.

After any of them the tables are as they were: files that no commit names are no part of a table.
"""

from hyperbloom.errors import ErrorKind, HyperbloomError

__all__ = [
    "ExportBusy",
    "ExportConflict",
    "ExportError",
    "ExportFull",
    "MasterUnreachable",
    "MissingJava",
    "MissingPackage",
    "SnapshotUnusable",
    "StoreUnreachable",
    "StreamBroken",
    "TableUnusable",
    "missing_package",
]

_OF_SPARK = ("pandas", "pyspark")


class ExportError(HyperbloomError):
    """Anything an export refuses or fails to do; the base of the errors below."""

    kind = ErrorKind.FAILED


class ExportBusy(ExportError):
    """Another export, compaction or vacuum works on the same folder."""

    kind = ErrorKind.BUSY


class ExportConflict(ExportError):
    """Somebody else committed to the same table meanwhile, in spite of the lock."""


class ExportFull(ExportError):
    """The disk of the tables (or Spark's scratch folder) has no room."""

    kind = ErrorKind.STORE_FULL


class MasterUnreachable(ExportError):
    """No Spark master answers."""

    kind = ErrorKind.UNREACHABLE


class MissingJava(ExportError):
    """There is no Java that Spark can run on."""


class MissingPackage(ExportError):
    """The extra `export` is not installed, or `spark` where Spark is asked for."""


class SnapshotUnusable(ExportError):
    """The snapshot is damaged, of another schema, or does not say whose it is."""

    kind = ErrorKind.STORE


class StoreUnreachable(ExportError):
    """The object store of the tables does not answer."""

    kind = ErrorKind.UNREACHABLE


class StreamBroken(ExportError):
    """What a streaming query follows does not go on from where the query stands."""

    kind = ErrorKind.CONFLICT


class TableUnusable(ExportError):
    """The folder holds no tables of ours, or a damaged one; or the object store lets nobody in."""


def missing_package(error: ImportError) -> MissingPackage:
    """What to say of an import that failed for want of an extra."""
    package = (error.name or "a package").partition(".")[0]
    extra = "spark" if package in _OF_SPARK else "export"
    return MissingPackage(
        f"{package} is not installed; install it with: pip install 'hyperbloom[{extra}]'"
    )
