# SPDX-License-Identifier: Apache-2.0
"""How a change of code changes the peak of a program: as Markdown, and as a history of commits.

    python -m allocbench.peak_change --base ../base --device null:l4 -- python train.py
    python -m allocbench.peak_change --history peaks --html peaks.html -- python train.py

With --base, the program is run in the folder of the base and in this one. With --history, its peak
at the current commit is added to a folder of the repository, in the format of asv; --html writes a
page with the peak and what holds it over the commits. Exit codes: 0, 2 for an error; with
--exit-code, 1 if the program in this folder does not fit the device, and 2 if that cannot be told.
docs/examples/memory.yml comments a pull request with it.
"""

import argparse
import contextlib
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allocbench.base import units
from allocbench.base.files import write_text
from allocbench.base.text import command_text
from allocbench.errors import USER_ERRORS, UsageError
from allocbench.inputs.devices import device_of, null_device_of
from allocbench.output.files import write_json
from allocbench.programs.program import DEFAULT_DEVICE, STEPS, ProgramSettings, ProgramWorkload
from allocbench.questions import peaks
from allocbench.questions.check import exit_code
from allocbench.questions.peaks import Peak
from allocbench.replays.runner import Runner, beside
from allocbench.reports.rows import asv

_WRONG = 2
_MOST = 20  # holders of a commit


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the change of the peak, or add it to a history; the exit code."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    dashes = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        prog="python -m allocbench.peak_change",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--base", help="the folder with the code before the change")
    parser.add_argument("--history", type=Path, help="the folder with the peaks of commits")
    parser.add_argument("--html", help="write a page of --history")
    parser.add_argument("--device", default=DEFAULT_DEVICE, help="the null GPU")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--exit-code", action="store_true", help="1 if it does not fit the device")
    parsed, command = parser.parse_args(words[:dashes]), tuple(words[dashes + 1 :])
    if not command:
        parser.error("no command follows: -- python train.py")
    if not parsed.base and not parsed.history:
        parser.error("give --base FOLDER, --history FOLDER, or both")
    if parsed.html and not parsed.history:
        parser.error("--html is for --history")
    shown, device = command_text(command), null_device_of(parsed.device)
    program = ProgramWorkload(
        command, ProgramSettings(device=device, steps=parsed.steps, quiet=True)
    )
    try:
        simulated = device_of(device)
        commit = _commit(parsed.history) if parsed.history else None
        if parsed.base:
            with contextlib.chdir(parsed.base):
                before, _ = peaks.run(program)
        after, trace = peaks.run(program)
        if commit:
            store(parsed.history, commit, shown, after)
        if parsed.html:
            from allocbench.reports.page import html  # needs the extra `report`

            page = html.of_history(asv.history(parsed.history), "GPU memory across commits")
            write_text(page, parsed.html)
    except (*USER_ERRORS, OSError, ModuleNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return _WRONG
    if parsed.base:
        print(markdown(shown, before, after))
    else:
        print(f"On {after.device}, the peak load of `{shown}` is {units.size(after.load)}.")
    if not parsed.exit_code:
        return 0
    return exit_code(Runner(trace, beside(simulated, trace)), "caching")


def store(folder: Path, commit: tuple[str, int], command: str, peak: Peak) -> None:
    """Add the peak of a command at a commit (hash, seconds since 1970) to results of asv.

    One file for each commit and device has the peak load, the largest holders at the peak, and the
    reserved bytes. What was there of the same command and commit is replaced. Raises ResultError
    for other files, and UserError.
    """
    own = re.sub(r"^\S*/", "", command)  # wherever its Python is
    name, (hash_, seconds) = re.sub(r"\W+", "_", own).strip("_"), commit
    machine = re.sub(r"[^\w.-]+", "-", peak.device)
    described_at = folder / "benchmarks.json"
    place = folder / machine / f"{hash_[:8]}-allocbench.json"
    described, stored = _stored(described_at), _stored(place)
    stored |= {
        "commit_hash": hash_,
        "date": 1000 * seconds,
        "env_name": "allocbench",
        "python": "",
        "params": {"machine": machine},
        **{"requirements": {}, "env_vars": {}, "durations": {}},
        "result_columns": ["result", "params", "version"],
        "results": stored.get("results", {}),
    }
    held = {" by ".join(filter(None, key)) or "live": size for *key, size in peak.held[:_MOST]}
    if rest := peak.load - sum(held.values()):
        held["everything else"] = rest
    holders = [repr(holder) for holder in held]
    known = described.get(f"{name}.track_held", {}).get("params", [[]])[0]
    for metric, result, params, all_params in (
        ("peak_load", [peak.load], [], []),
        ("held", list(held.values()), [holders], [list(dict.fromkeys([*known, *holders]))]),
        ("peak_reserved", [peak.reserved], [], []),
    ):
        key = f"{name}.track_{metric}"
        about = {"name": key, "pretty_name": f"{command}: {metric}", "type": "track", "code": ""}
        kind = {"unit": "bytes", "version": "1", "param_names": ["holder"][: len(params)]}
        described[key] = about | kind | {"params": all_params}
        stored["results"][key] = [result, params, "1"]
    place.parent.mkdir(parents=True, exist_ok=True)
    contents = {
        described_at: described,
        place.with_name("machine.json"): {"machine": machine, "version": 1},
        place: stored,
    }
    for path, content in contents.items():
        write_json(content, path)


def _stored(path: Path) -> dict[str, Any]:
    return asv.load(path) if path.exists() else {"version": asv.SCHEMA_VERSION}


def _commit(folder: Path) -> tuple[str, int]:
    """The current commit and its time; raises UsageError if files outside of a folder differ."""

    def git(*words: str) -> str:
        ended = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
        if ended.returncode:
            raise UsageError(f"--history: {(ended.stderr.strip() or 'git failed').splitlines()[0]}")
        return ended.stdout.strip()

    hash_, seconds = git("show", "--no-patch", "--format=%H %ct").split()
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{folder}")
    if changed:
        some = changed.splitlines()[0].split(maxsplit=1)[-1]
        raise UsageError(f"--history: {some} differs from commit {hash_[:7]}: commit it first")
    return hash_, int(seconds)


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
