# SPDX-License-Identifier: Apache-2.0
"""How a change of code changes the peak of a program, as Markdown on standard output.

    python -m allocbench.peak_change --base ../base --device null:l4 -- python train.py

The program is run in the folder of the base and in this one. Exit codes: 0, 2 for an error; with
--exit-code, 1 if the program in this folder does not fit the device, and 2 if that cannot be told.
docs/examples/memory.yml comments a pull request with it.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence

from allocbench.base import units
from allocbench.base.text import command_text
from allocbench.errors import USER_ERRORS
from allocbench.inputs.devices import device_of, null_device_of
from allocbench.programs.program import DEFAULT_DEVICE, STEPS, ProgramSettings, ProgramWorkload
from allocbench.questions import peaks
from allocbench.questions.check import exit_code
from allocbench.questions.peaks import Peak
from allocbench.replays.runner import Runner

_WRONG = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the change of the peak; the exit code."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    dashes = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(prog="python -m allocbench.peak_change", description=__doc__)
    parser.add_argument("--base", required=True, help="the folder with the code before the change")
    parser.add_argument("--device", default=DEFAULT_DEVICE, help="the null GPU")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--exit-code", action="store_true", help="1 if it does not fit the device")
    parsed, command = parser.parse_args(words[:dashes]), tuple(words[dashes + 1 :])
    if not command:
        parser.error("no command follows: -- python train.py")
    program = ProgramWorkload(
        command,
        ProgramSettings(device=null_device_of(parsed.device), steps=parsed.steps, quiet=True),
    )
    try:
        with contextlib.chdir(parsed.base):
            before, _ = peaks.run(program)
        after, trace = peaks.run(program)
    except (*USER_ERRORS, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _WRONG
    print(markdown(command_text(command), before, after))
    if not parsed.exit_code:
        return 0
    return exit_code(Runner(trace, device_of(parsed.device)), "caching")


def markdown(command: str, before: Peak, after: Peak) -> str:
    """The change of a peak as a table, with what grew and what shrank."""
    change = after.load - before.load
    lines = [
        f"### GPU memory of `{command}`",
        "",
        f"On {after.device}, the peak load {_verb(change)} {_bytes(abs(change), before.load)}.",
        "",
        "| | before | after |",
        "|---|--:|--:|",
        f"| live at the peak | {units.size(before.load)} | {units.size(after.load)} |",
        f"| reserved by PyTorch | {units.size(before.reserved)} | {units.size(after.reserved)} |",
    ]
    grown, shrunk = peaks.what_grew(after, before), peaks.what_grew(before, after)
    rows = [*grown, *(f"-{line.removeprefix('+')}" for line in shrunk)]
    return "\n".join([*lines, "", *(f"- `{row}`" for row in rows)]).rstrip()


def _verb(change: int) -> str:
    return "grows by" if change > 0 else "shrinks by" if change < 0 else "does not change:"


def _bytes(size: int, of: int) -> str:
    return f"{units.size(size)} ({100 * size / max(1, of):.2f} %)"


if __name__ == "__main__":
    sys.exit(main())
