"""What is done to orders, as functions from DataFrame to DataFrame: streaming.py and pipeline/ both use them."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

WATERMARK = "10 minutes"
SESSION_GAP = "3 minutes"

_RAW = "order string, customer string, item string, quantity int, cents bigint, placed string, broken string"
_CUSTOMER = "name string, region string"
_CLEAN = (
    "order string, customer string, name string, region string, item string, quantity int, cents bigint,"
    " placed timestamp"
)
_REVENUE = "minute timestamp, region string, orders bigint, units bigint, cents bigint"
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSX"


def parse(records: DataFrame) -> DataFrame:
    """Rows of `orders` with the fields of their JSON, and `reason`: why a row is none; null where it is good."""
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken"}
    json = F.from_json(F.col("value").cast("string"), _RAW, options)
    rows = records.select("key", "value", "partition", "offset", json.alias("json"))
    rows = rows.select("key", "value", "partition", "offset", "json.*")
    rows = rows.withColumn("placed", F.try_to_timestamp("placed", F.lit(_TIME)))
    return rows.withColumn("reason", _reason())


def _reason() -> Column:
    return (
        F.when(F.col("broken").isNotNull() | F.col("order").isNull(), "malformed")
        .when(F.col("customer").isNull(), "customer is missing")
        .when(F.coalesce("quantity", F.lit(0)) < 1, "quantity is not positive")
        .when(F.coalesce("cents", F.lit(-1)) < 0, "price is negative")
        .when(F.col("placed").isNull(), "placed is no time")
    )


def checked(records: DataFrame, customers: DataFrame) -> DataFrame:
    """Records of `orders` as records of `orders.clean` and `orders.dead-letter`, for one sink that looks at `topic`."""
    parsed = parse(records)
    good = to_topic(clean(parsed, customers), "customer").withColumn("headers", F.lit(None))
    bad = dead_letters(parsed).withColumn("topic", F.lit("orders.dead-letter"))
    return bad.unionByName(good.withColumn("topic", F.lit("orders.clean")))


def dead_letters(parsed: DataFrame) -> DataFrame:
    """Bad records as they came, with the headers `reason` and `source`, to be written to a topic."""
    source = F.format_string("orders-%d@%d", "partition", "offset")
    headers = F.array(_header("reason", F.col("reason")), _header("source", source))
    return parsed.where("reason is not null").select("key", "value", headers.alias("headers"))


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("binary").alias("value"))


def latest_customers(records: DataFrame) -> DataFrame:
    """A topic's newest value of each key; a key whose newest value is null is deleted.

    A key's records are in one partition, so that the greatest offset is the newest record.
    """
    newest = records.groupBy("key").agg(F.max_by(F.struct("value"), "offset").alias("last"))
    rows = newest.where("last.value is not null").select(
        F.col("key").cast("string").alias("customer"),
        F.from_json(F.col("last.value").cast("string"), _CUSTOMER).alias("json"),
    )
    return rows.select("customer", "json.*")


def clean(parsed: DataFrame, customers: DataFrame) -> DataFrame:
    """Every good order once, with its customer's name and region (null and `unknown` for a customer that is not there).

    Orders that come later than the watermark allows are dropped: they can no longer be told from ones seen before.
    """
    good = parsed.where("reason is null").withWatermark("placed", WATERMARK)
    once = good.dropDuplicatesWithinWatermark(["order"])
    return once.join(F.broadcast(customers), "customer", "left").select(
        "order",
        "customer",
        "name",
        F.coalesce("region", F.lit("unknown")).alias("region"),
        "item",
        "quantity",
        "cents",
        "placed",
    )


def revenue_per_minute(orders: DataFrame) -> DataFrame:
    """Orders, units and revenue of each minute and region; a minute comes when the watermark has passed it."""
    grouped = orders.withWatermark("placed", WATERMARK).groupBy(F.window("placed", "1 minute"), "region")
    return _sums(grouped).select(F.col("window.start").alias("minute"), "region", "orders", "units", "cents")


def sessions(orders: DataFrame) -> DataFrame:
    """Each customer's orders that lie less than `SESSION_GAP` apart, when the watermark has passed them."""
    grouped = orders.withWatermark("placed", WATERMARK).groupBy(F.session_window("placed", SESSION_GAP), "customer")
    begin, end = F.col("session_window.start").alias("begin"), F.col("session_window.end").alias("end")
    return _sums(grouped).select("customer", begin, end, "orders", "units", "cents")


def _sums(grouped) -> DataFrame:  # type: ignore[no-untyped-def]  # GroupedData, of Spark or of Spark Connect
    return grouped.agg(
        F.count("*").alias("orders"),
        F.sum("quantity").alias("units"),
        F.sum(F.col("quantity") * F.col("cents")).alias("cents"),
    )


def to_topic(rows: DataFrame, key: str) -> DataFrame:
    """Rows as records: a column is the key, all of them the value, as JSON."""
    return rows.select(F.col(key).cast("binary").alias("key"), F.to_json(F.struct("*")).alias("value"))


def clean_from_topic(records: DataFrame) -> DataFrame:
    """`to_topic(clean(...))` undone."""
    return _from_json(records, _CLEAN)


def revenue_from_topic(records: DataFrame) -> DataFrame:
    """`to_topic(revenue_per_minute(...))` undone."""
    return _from_json(records, _REVENUE)


def _from_json(records: DataFrame, schema: str) -> DataFrame:
    return records.select(F.from_json(F.col("value").cast("string"), schema).alias("json")).select("json.*")
