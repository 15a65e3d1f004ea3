# SPDX-License-Identifier: Apache-2.0
"""The result row: its schema, its check, its JSON.

A row is a flat dict: one allocator on one workload on one device. `reports.columns` is the only
place that names a column; tables, figures and the HTML report take headings, units, directions and
definitions from there.
"""

from __future__ import annotations

import json
import math
import numbers
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from allocbench.base.files import write_text
from allocbench.reports.rows import ResultError as ResultError
from allocbench.reports.rows.assumptions import from_text
from allocbench.reports.rows.columns import COLUMNS as COLUMNS
from allocbench.reports.rows.columns import Column as Column

if TYPE_CHECKING:
    import pandas as pd  # imported late, to keep the help of commands fast

Rows: TypeAlias = "Iterable[Mapping[str, Any]] | pd.DataFrame"


SCHEMA: Mapping[str, Column] = {column.name: column for column in COLUMNS}
IDENTITY: tuple[str, ...] = tuple(c.name for c in COLUMNS if c.group == "identity")
KEY: tuple[str, ...] = ("workload", "device", "allocator")
SOURCES: tuple[str, ...] = ("estimate", "measured")


def frame(rows: Rows, where: str = "results") -> pd.DataFrame:
    """Rows as a checked DataFrame: one row each, every column of the schema in its order.

    Bytes and counts are exact (nullable Int64), seconds and ratios float64 with NaN for null. A
    metric that a row lacks is null. Raises ResultError, beginning with `where`, for an unknown
    column, a missing or null identity column, a value of the wrong type, a second row for the same
    workload, device and allocator, or device seconds without one known source per device.
    """
    import pandas as pd

    records_given = rows.to_dict("records") if isinstance(rows, pd.DataFrame) else list(rows)
    checked = [_row(row, f"{where}: row {n}") for n, row in enumerate(records_given, 1)]
    table = pd.DataFrame(
        {
            column.name: pd.Series([row[column.name] for row in checked], dtype=dtype(column))
            for column in COLUMNS
        }
    )
    repeated = table.duplicated(list(KEY))
    if repeated.any():
        n = int(repeated.to_numpy().argmax())
        key = ", ".join(f"{name} {checked[n][name]!r}" for name in KEY)
        raise ResultError(f"{where}: row {n + 1}: a second row for {key}")
    _check_sources(checked, where)
    return table


def dtype(column: Column) -> Any:
    """Of a column in a frame of results."""
    if column.name == "candidate":
        return "bool"
    if column.unit == "":
        return "object"
    return "Int64" if column.unit in ("bytes", "count") else "float64"


def from_json(text: str | bytes, where: str) -> pd.DataFrame:
    """The rows of a JSON text, checked as `frame` does; raises ResultError beginning `where`."""
    try:
        rows = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ResultError(f"{where}: not a file of results: it is not text") from error
    except (ValueError, RecursionError) as error:
        raise ResultError(f"{where}: not JSON: {error}") from error
    if not isinstance(rows, list):
        raise ResultError(f"{where}: expected a list of result rows, found {_kind(rows)}")
    return frame(rows, where)


def write(rows: Rows, path: str | Path) -> None:
    """Write rows as a JSON list of flat objects, null for what is not a number.

    The file appears whole or not at all; "-" is standard output. Raises UserError.
    """
    write_text(to_json(rows), path)


def to_json(rows: Rows) -> str:
    """Rows as a JSON list of flat objects, null for what is not a number; raises ResultError."""
    text = json.dumps(records(frame(rows)), indent=2, ensure_ascii=False, allow_nan=False)
    return text + "\n"


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame as plain dicts, None for null; a value may also be a list."""
    import pandas as pd

    return [
        {
            str(name): None if pd.api.types.is_scalar(value) and pd.isna(value) else value
            for name, value in row.items()
        }
        for row in table.astype(object).to_dict("records")
    ]


def _row(row: object, where: str) -> dict[str, Any]:
    if not isinstance(row, Mapping):
        raise ResultError(f"{where}: expected an object, found {_kind(row)}")
    unknown = [str(name) for name in row if name not in SCHEMA]
    if unknown:
        near = get_close_matches(unknown[0], SCHEMA)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        raise ResultError(f"{where}: unknown column {unknown[0]!r}{meant}")
    values = {name: _value(column, row.get(name), where) for name, column in SCHEMA.items()}
    for name in IDENTITY:
        if values[name] is None:
            raise ResultError(f"{where}: column {name!r} is missing")
    try:
        from_text("[]" if values["device_assumptions"] is None else values["device_assumptions"])
    except ValueError as error:
        raise ResultError(f"{where}: device_assumptions: {error}") from error
    return values


def _value(column: Column, value: Any, where: str) -> Any:
    """The value as str, bool, int, float or None; raises ResultError for any other kind."""
    import pandas as pd

    if value is None or value is pd.NA or (isinstance(value, numbers.Real) and value != value):
        return None
    plain = value.item() if hasattr(value, "item") else value
    if column.name == "candidate":
        if isinstance(plain, bool):
            return plain
        raise ResultError(f"{where}: column 'candidate' must be true or false, found {value!r}")
    if column.unit == "":
        if not isinstance(plain, str):
            raise ResultError(f"{where}: column {column.name!r} must be text, found {_kind(value)}")
        if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in plain):
            raise ResultError(f"{where}: column {column.name!r} has control characters: {plain!r}")
        return plain
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise ResultError(f"{where}: column {column.name!r} must be a number, found {_kind(value)}")
    if isinstance(plain, float) and not math.isfinite(plain):
        return None
    if abs(plain) > sys.float_info.max:
        raise ResultError(
            f"{where}: column {column.name!r} has a number of {len(str(abs(plain)))} digits"
        )
    if column.unit in ("bytes", "count"):
        if plain != int(plain) or not 0 <= plain < 2**63:
            raise ResultError(
                f"{where}: column {column.name!r} must be a whole number of at least 0, found"
                f" {plain}"
            )
        return int(plain)
    return float(plain)


def _check_sources(rows: Sequence[Mapping[str, Any]], where: str) -> None:
    """Check that device seconds state their source, and that each device has a single source."""
    sources: dict[str, str] = {}
    for n, row in enumerate(rows, 1):
        if row["device_seconds"] is None:
            continue
        source = row["device_seconds_source"]
        if source not in SOURCES:
            raise ResultError(
                f"{where}: row {n}: device_seconds_source must be one of {', '.join(SOURCES)},"
                f" found {source!r}"
            )
        if sources.setdefault(row["device"], source) != source:
            raise ResultError(
                f"{where}: row {n}: device {row['device']!r} has both estimated and measured"
                " device_seconds"
            )


def _kind(value: object) -> str:
    names: dict[type, str] = {dict: "an object", list: "a list", str: "text", bool: "a boolean"}
    return names.get(type(value), f"{value!r}"[:40])


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")
