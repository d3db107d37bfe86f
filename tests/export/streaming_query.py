"""A streaming query of its own, to be killed: python streaming_query.py '{"path": …}'."""

from __future__ import annotations

import json
import sys

from hyperbloom.export import append_batch, register, spark_session


def main() -> None:
    options = json.loads(sys.argv[1])
    checkpoint, table = options.pop("checkpoint"), options.pop("table")
    with spark_session("local[2]") as spark:
        register(spark)
        rows = spark.readStream.format("hyperbloom").options(**options).load()
        writer = rows.writeStream.foreachBatch(append_batch(table, query="live"))
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    main()
