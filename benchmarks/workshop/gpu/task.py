# SPDX-License-Identifier: Apache-2.0
"""What all tasks share: the command line, and the JSON file with result and provenance.

On a null GPU, the values are under "null" instead of "measured", and the row has no times.
"""

import argparse
import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allocbench.base.files import whole_file
from benchmarks.workshop.gpu.provenance import NULL, provenance


def new_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that every task has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    parser.add_argument("--dry", action="store_true", help="a tiny program on the CPU")
    return parser


def finish(
    arguments: argparse.Namespace, measure: Callable[[argparse.Namespace], dict[str, Any]]
) -> None:
    """Measure, and write the result with its provenance to the output file."""
    content = {
        name: value for name, value in vars(arguments).items() if name not in ("output", "dry")
    }
    if NULL in os.environ:
        importlib.import_module("torch")  # loads the null GPU
    values = measure(arguments)
    origin = provenance(dry=arguments.dry)
    null = origin["null"] is not None
    if null and values.get("row"):
        values["row"] |= {"device_kind": "null", "device_seconds": None}
        values["row"].pop("device_seconds_source", None)
    result = {
        "arguments": content,
        "provenance": origin,
        "null" if null else "measured": values,
    }
    with whole_file(arguments.output) as file:
        file.write(json.dumps(result, indent=1, allow_nan=False).encode() + b"\n")
