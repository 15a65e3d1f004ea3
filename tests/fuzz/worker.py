# SPDX-License-Identifier: Apache-2.0
"""Runs one target: `python -m tests.fuzz.worker TARGET [option ...] [file or folder ...]`.

The options are those of libFuzzer. A file is given to the target once, which repeats a failure.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["allocbench"]):
    from tests.fuzz.inputs import TARGETS


def main() -> None:
    program, target, *arguments = sys.argv
    atheris.Setup([program, *arguments], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
