# SPDX-License-Identifier: Apache-2.0
"""Data tables for the scripts of a report, compressed into one base64 text.

`templates/data.js` reads it. The packed text is base64, so nothing in it can close the element that
contains it.
"""

import base64
import gzip
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_DIGITS = 4  # significant digits of measured numbers


def pack(tables: Mapping[str, pd.DataFrame], **others: Any) -> str:
    """The tables, and any other JSON values, as base64 of gzip of JSON.

    The same input gives the same text. Missing numbers are null.
    """
    content = {**others, "tables": {name: _columns(frame) for name, frame in tables.items()}}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _columns(frame: pd.DataFrame) -> dict[str, Any]:
    return {str(name): _column(frame[name]) for name in frame}


def _column(values: "pd.Series[Any]") -> dict[str, Any]:
    if values.dtype == bool:
        return {"whole": values.astype(int).tolist(), "flag": True}
    if pd.api.types.is_integer_dtype(values.dtype) and not values.isna().any():
        return _whole(values.to_numpy(np.int64))
    if pd.api.types.is_numeric_dtype(values.dtype):
        numbers = values.astype("float64").tolist()
        return {"number": [_rounded(number) for number in numbers]}
    codes, names = pd.factorize(values)
    return {"text": [str(name) for name in names], "codes": codes.tolist()}


def _whole(values: Any) -> dict[str, Any]:
    """Numbers in units of their common divisor, or their differences, the first to 0.

    The form that takes less space is chosen: numbers without order have longer differences.
    """
    differences = np.diff(values, prepend=0)
    unit = int(np.gcd.reduce(differences)) or 1 if len(differences) else 1
    forms = {"differences": differences // unit, "whole": values // unit}
    shortest = min(forms, key=lambda name: _length(forms[name]))
    return {shortest: forms[shortest].tolist(), "unit": unit}


def _length(numbers: NDArray[np.int64]) -> float:
    """About how many bits numbers have, with one for the sign if some are negative."""
    signs = len(numbers) if np.any(numbers < 0) else 0
    return float(np.log2(np.abs(numbers) + 1.0).sum()) + signs


def _rounded(number: float) -> float | None:
    if not math.isfinite(number):
        return None
    return float(f"{number:.{_DIGITS}g}")
