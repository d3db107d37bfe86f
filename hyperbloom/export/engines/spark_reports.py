"""Reports over all nodes, made anew from `values` by Spark: who has what, and from whom it came.

This is the one part of an export that moves rows between tasks. What is moved is a hash and a few
numbers a row, never a value, which may have 256 KiB; and each task adds up its own rows first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["REPORT_FRAMES", "coverage", "provenance"]


def coverage(values: DataFrame) -> DataFrame:
    """A row for each value of each feed: how many nodes have it, first and last seen."""
    from pyspark.sql import functions as sql

    return (
        values.select("feed", _value_hash(), "size", "node", "received_at")
        .groupBy("feed", "value_hash")
        .agg(
            sql.max("size").alias("size"),
            # A node has a value of a feed once, so its rows are its nodes.
            sql.count("node").alias("nodes"),
            sql.min("received_at").alias("first_seen"),
            sql.max("received_at").alias("last_seen"),
        )
    )


def provenance(values: DataFrame) -> DataFrame:
    """A row for each key that values came from: how many, of how many feeds, on how many days."""
    from pyspark.sql import functions as sql

    different = (
        values.select("origin", "feed", _value_hash(), "size", "received_at")
        .groupBy("origin", "feed", "value_hash")
        .agg(
            sql.max("size").alias("size"),
            sql.count("*").alias("arrivals"),
            sql.min("received_at").alias("first_seen"),
            sql.max("received_at").alias("last_seen"),
        )
        .groupBy("origin", "feed")
        .agg(
            sql.count("*").alias("values"),
            sql.sum("arrivals").alias("arrivals"),
            sql.sum("size").alias("bytes"),
            sql.min("first_seen").alias("first_seen"),
            sql.max("last_seen").alias("last_seen"),
        )
        .groupBy("origin")
        .agg(
            sql.sum("values").alias("values"),
            sql.sum("arrivals").alias("arrivals"),
            sql.sum("bytes").alias("bytes"),
            sql.count("*").alias("feeds"),
            sql.min("first_seen").alias("first_seen"),
            sql.max("last_seen").alias("last_seen"),
        )
    )
    days = (
        values.select("origin", "date")
        .distinct()
        .groupBy("origin")
        .agg(sql.count("*").alias("days"))
    )
    return different.join(days, "origin").select(
        "origin", "values", "arrivals", "bytes", "feeds", "days", "first_seen", "last_seen"
    )


def _value_hash() -> Column:
    from pyspark.sql import functions as sql

    return sql.unhex(sql.sha2("value", 256)).alias("value_hash")


REPORT_FRAMES: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = MappingProxyType(
    {"coverage": coverage, "provenance": provenance}
)
