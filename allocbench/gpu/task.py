# SPDX-License-Identifier: Apache-2.0
"""What every task's process does: read its command line, measure, write one JSON file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allocbench.base.whole_file import whole_file
from allocbench.gpu.provenance import provenance


def parser(description: str | None) -> argparse.ArgumentParser:
    """A command line with what every task has."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--output", type=Path, required=True, help="the JSON file to write")
    made.add_argument("--dry", action="store_true", help="tiny, on the processor")
    return made


def finish(
    arguments: argparse.Namespace, measure: Callable[[argparse.Namespace], dict[str, Any]]
) -> None:
    """Measure and write the result with its provenance; the file appears whole or not at all."""
    asked = {
        name: value for name, value in vars(arguments).items() if name not in ("output", "dry")
    }
    result = {
        "asked": asked,
        "provenance": provenance(dry=arguments.dry),
        "measured": measure(arguments),
    }
    with whole_file(arguments.output) as file:
        file.write(json.dumps(result, indent=1, allow_nan=False).encode() + b"\n")
