# SPDX-License-Identifier: Apache-2.0
"""What all tasks share: the command line, and the JSON file with result and provenance."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allocbench.base.whole_file import whole_file
from allocbench.gpu.provenance import provenance


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
    given = {
        name: value for name, value in vars(arguments).items() if name not in ("output", "dry")
    }
    result = {
        "arguments": given,
        "provenance": provenance(dry=arguments.dry),
        "measured": measure(arguments),
    }
    with whole_file(arguments.output) as file:
        file.write(json.dumps(result, indent=1, allow_nan=False).encode() + b"\n")
