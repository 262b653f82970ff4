"""What Spark is to show of a value, from PostgreSQL's own text of it: written apart from the table
of types, with the parsers of Python's library."""

import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

_ITEM = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}]+)')


class Unfit:
    """The column is NULL, and the text stands in `exact`."""

    def __repr__(self) -> str:
        return "unfit"


UNFIT = Unfit()
# Where one value does not fit its Avro type, and an array of such: what Spark could hold of it is
# not taken apart, and stands in `exact` as it is.
WHOLE = {"numeric[]", "interval[]", "bit varying[]", "money"}


def expected(spark_type: str, text: str | None) -> Any:
    """The value in Python, as `collect()` gives it; UNFIT where Spark has none."""
    if text is None:
        return None
    if re.fullmatch(r"-?\$[0-9,.]+", text):
        text = text.replace("$", "").replace(",", "")  # money is its number
    if spark_type == "STRING":
        return text
    if spark_type in ("SMALLINT", "INT", "BIGINT"):
        return int(text)
    if spark_type == "FLOAT":
        return repr(*struct.unpack("<f", struct.pack("<f", float(text))))
    if spark_type == "DOUBLE":
        return repr(float(text))  # NaN is equal to itself, -0 is not 0
    if spark_type == "BOOLEAN":
        return {"t": True, "true": True, "f": False, "false": False}[text]
    if spark_type == "BINARY":
        return bytes.fromhex(text.removeprefix("\\x"))
    if spark_type.startswith("DECIMAL"):
        number = Decimal(text)
        return number if number.is_finite() else UNFIT
    if spark_type.startswith("STRUCT"):
        x, y = text.strip("()").split(",")
        return {"x": repr(float(x)), "y": repr(float(y))}
    if spark_type.startswith("ARRAY"):
        return _array(spark_type[len("ARRAY<") : -1], text)
    return _moment(spark_type, text)


def _moment(spark_type: str, text: str) -> Any:
    if "BC" in text or "infinity" in text or len(text.split("-", 1)[0]) > 4:
        return UNFIT
    if spark_type == "DATE":
        return date.fromisoformat(text)
    moment = datetime.fromisoformat(text)
    return moment.astimezone(UTC).replace(tzinfo=None) if spark_type == "TIMESTAMP" else moment


def _array(item_type: str, text: str) -> Any:
    if item_type == "DOUBLE" and text.endswith("]"):  # a vector
        return [repr(float(part)) for part in text.strip("[]").split(",")]
    if text.startswith(("[", "{{")):
        return UNFIT
    items = [
        re.sub(r"\\(.)", r"\1", quoted) if plain == "" else None if plain == "NULL" else plain
        for quoted, plain in _ITEM.findall(text[1:-1])
    ]
    values = [expected(item_type, item) for item in items]
    return UNFIT if UNFIT in values else values


def shown(value: Any) -> Any:
    """A collected value, comparable with `expected`."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, list):
        return [shown(item) for item in value]
    if hasattr(value, "asDict"):
        value = value.asDict()
    if isinstance(value, dict):
        return {name: shown(item) for name, item in value.items()}
    return value
