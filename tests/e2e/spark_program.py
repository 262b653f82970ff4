"""A program of somebody else's over Spark Connect: no JVM, and no classic session.

python spark_program.py URL OPTIONS: options of the data source `gauss_cdc` as JSON.  It prints what
a batch, a stream and a function for groups of commits found, as JSON.
"""

import json
import sys
from threading import Event
from typing import Any

from pyspark.sql import SparkSession

from schemas.tables import TableId
from spark_consumers.api import CommitGroup, Options, changes, for_each_commit_group
from spark_consumers.source import GaussCdcSource

url, given = sys.argv[1:]
options = json.loads(given)
spark = SparkSession.builder.remote(url).getOrCreate()
spark.dataSource.register(GaussCdcSource)

batch = spark.read.format("gauss_cdc").options(**options).load()
rows = batch.orderBy("_commit_version", "_ordinal").select("_change_type", "id").collect()
stream = spark.readStream.format("gauss_cdc").options(**options).load()
query = stream.writeStream.format("memory").queryName("found").trigger(availableNow=True).start()
query.awaitTermination()
several = {name: value for name, value in options.items() if name != "table"}
several["tables"] = options["table"]
nested = spark.read.format("gauss_cdc").options(**several).load()

# A secret goes to tasks as a file; this broker asks for none.
where = Options(
    {"bootstrap.servers": options["kafka.bootstrap.servers"], "sasl.password": "nobody's"},
    options["registry"],
    options["prefix"],
)
groups: list[list[Any]] = []


def until(seq: int) -> None:
    """Take groups up to a commit; the next call begins behind it."""
    stop = Event()

    def fn(group: CommitGroup) -> None:
        for table in group.tables:
            found = group.changes(table).orderBy("seq", "ordinal").collect()
            groups.append([group.upto.seq, [one.op for one in found]])
            if group.upto.seq == 2:
                groups.append([one.op for one in group.net(table, ["id"]).collect()])
        if group.upto.seq == seq:
            stop.set()

    for_each_commit_group(
        spark, where, fn, checkpoint="viewfs://other/state/mine", stop=stop, max_rows=1
    )


until(1)
until(2)
sys.stdout.write(
    json.dumps(
        {
            "batch": [list(row) for row in rows],
            "nested": nested.where("_table = 'public.t'").select("`public.t`.id").count(),
            "stream": spark.table("found").count(),
            "changes": changes(spark, where, TableId("public", options["table"])).count(),
            "groups": groups,
        }
    )
)
