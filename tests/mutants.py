# SPDX-License-Identifier: Apache-2.0
"""Mutate modules, one place at a time, and count the mutants that the tests of their folder notice.

    python -m tests.mutants allocbench/questions/growth.py --most 40

cosmic-ray makes the mutants of a copy of the sources, in build/mutants; the working tree is not
touched. `tests.mutant_runs` runs the tests, which are those of the folder that mirrors the module's
own, or `--tests`. `--quick SECONDS` runs only the quickest tests of the line: what they do not
notice may be noticed by others, and the same command with more seconds tries only what is left. For
code outside of functions, and where only other processes run it, the file changes, and all run;
with `--quick`, the quickest of those that run the module.

`--most` draws that many mutants at random, with `--seed`. A folder stands for its modules. Each
survivor is printed; the exit code is 1 if fewer than `--least` percent were noticed. The same
command goes on where an interrupted one stopped; where tests have changed, it begins again, or with
`--survivors` tries only those that were left.
"""

import argparse
import ast
import difflib
import fcntl
import functools
import hashlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cosmic_ray.plugins
from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_code
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import MutationSpec

from allocbench.allocators import _core
from allocbench.workloads import _native
from tests import clean_environment, mutant_runs, source_copy

FOLDER = source_copy.ROOT / "build/mutants"
_NOT_WORTH_IT = {
    *("core/RemoveDecorator", "core/NumberReplacer"),
    *("core/ReplaceBinaryOperator_BitAnd_Mul", "core/ReplaceBinaryOperator_BitOr_Add"),
    *(f"core/ReplaceComparisonOperator_{one}" for one in ("Eq_Is", "Is_Eq", "NotEq_IsNot")),
    "core/ReplaceComparisonOperator_IsNot_NotEq",
}
"""Decorators of data classes are noticed at once; numbers are mostly lengths of what is shown; of
masks, the product is what both have and the sum is what either has; a constant text and a small
number are the same object as any that is equal."""
_SECONDS = 1800.0  # by the clock, of all tests for a mutant outside of functions


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--numbers", action="store_true", help="also change numbers")
    parser.add_argument("--quick", type=float, default=0.0, metavar="SECONDS", help="0: all tests")
    parser.add_argument("--survivors", action="store_true", help="only those of the last run")
    parser.add_argument("--least", type=float, default=90.0, metavar="PERCENT")
    given = parser.parse_args(arguments)
    modules = [path for name in given.paths for path in _modules(name)]
    tests = given.tests or sorted({_tests_of(path) for path in modules})
    missing = [
        name for name in [*map(str, given.paths), *tests] if not Path(name.split("::")[0]).exists()
    ]
    if missing:
        parser.error(f"not there: {', '.join(missing)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as in_use:
        try:
            fcntl.flock(in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"{FOLDER}: another run uses the copy there")
        drawn = _drawn(modules, given.most, given.seed, given.numbers)
        results = _results(drawn, tests, given.quick, given.survivors)
    return _report(drawn, results, given.least)


def _modules(path: Path) -> list[Path]:
    found = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return [file for file in found if file.exists() and file.name != "__init__.py"]


def _tests_of(module: Path) -> str:
    """tests/questions for allocbench/questions/growth.py."""
    inside = module.parent
    parts = inside.parts[1:] if inside.parts[0] == "allocbench" else inside.parts
    while parts and not Path("tests", *parts).is_dir():
        parts = parts[:-1]
    if not parts:
        sys.exit(f"no folder of tests mirrors that of {module}: name them with --tests")
    return str(Path("tests", *parts))


def _copied() -> tuple[Path, dict[str, str]]:
    """The copy of the sources with the native modules of this installation; its environment."""
    copy = FOLDER / "source"
    source_copy.update(copy)
    for module, package in ((_core, "allocators"), (_native, "workloads")):
        for file in Path(str(module.__file__)).parent.glob("*.so"):
            shutil.copy(file, copy / package)
    if not (FOLDER / "environment").exists():
        clean_environment.python(FOLDER / "environment")
    python = str(FOLDER / "environment/bin/python")
    given = {"PYTHON": python, "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"}
    here = os.pathsep.join([str(copy), *filter(None, [os.environ.get("PYTHONPATH")])])
    return copy, {**os.environ, **given, "PYTHONPATH": here}


def _results(
    drawn: dict[str, dict[str, Any]], tests: Sequence[str], quick: float, survivors: bool
) -> dict[str, bool]:
    """Whether each mutant is noticed: as known, or found now."""
    copy, environment = _copied()
    told = hashlib.sha256(repr((sorted(drawn), tests)).encode()).hexdigest()
    into = FOLDER / f"{told[:16]}.jsonl"
    digests = [
        hashlib.sha256(path.read_bytes()).digest() for path in sorted(Path("tests").rglob("*.py"))
    ]
    of_tests = hashlib.sha256(b"".join(digests)).hexdigest()
    tested = f"{of_tests} {quick}"

    def known() -> dict[str, bool | None]:
        lines = into.read_text(encoding="utf-8").splitlines() if into.exists() else []
        return {
            one["id"]: one["noticed"]
            for one in map(json.loads, lines)
            if one["tested"] == tested
            or (one["noticed"] and (survivors or one["tested"].startswith(of_tests)))
        }

    left = [mutant | {"tested": tested} for name, mutant in drawn.items() if name not in known()]
    if left:
        given, first = FOLDER / "mutants.json", FOLDER / "first.json"
        given.write_text(json.dumps(left), encoding="utf-8")
        pytest = [environment["PYTHON"], "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
        more = ["-p", "tests.mutant_runs", f"--mutants={given}", f"--into={into}"]
        command = [*pytest, *more, f"--first={first}", f"--quick={quick}", *tests]
        if subprocess.run(command, cwd=copy, env=environment).returncode:
            sys.exit("the tests fail without a mutant")
        ran = json.loads(first.read_text(encoding="utf-8"))
        for name, noticed in known().items():
            if noticed is None:
                mutant = drawn[name]
                (copy / mutant["module"]).write_text(mutant["after"], encoding="utf-8")
                those = mutant_runs.chosen_tests(mutant | {"lines": []}, ran, quick)
                noticed = _fails([*pytest, *((those if quick else []) or tests)], copy, environment)
                (copy / mutant["module"]).write_text(mutant["before"], encoding="utf-8")
                with into.open("a", encoding="utf-8") as file:
                    line = {"id": name, "noticed": noticed, "tested": tested}
                    file.write(json.dumps(line) + "\n")
    return {name: bool(noticed) for name, noticed in known().items()}


def _fails(command: Sequence[str], copy: Path, environment: dict[str, str]) -> bool:
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, timeout=_SECONDS, stdout=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def _drawn(
    modules: Sequence[Path], most: int, seed: int, numbers: bool
) -> dict[str, dict[str, Any]]:
    """Mutants that are worth it, at most that many, by name: see `tests.mutant_runs`."""
    left_out = _NOT_WORTH_IT - ({"core/NumberReplacer"} if numbers else set())
    listed = FOLDER / "listed.sqlite"
    listed.unlink(missing_ok=True)
    with use_db(listed, WorkDB.Mode.create) as database:
        init(modules, database, {})
        found = [item.mutations[0] for item in database.work_items]
    worth = sorted(
        (one for one in found if one.operator_name not in left_out and not _changes_nothing(one)),
        key=lambda one: (str(one.module_path), one.operator_name, one.occurrence),
    )
    random.Random(seed).shuffle(worth)
    made = filter(None, map(_mutant, worth))
    return {one["id"]: one for one in itertools.islice(made, most or None)}


def _mutant(mutation: MutationSpec) -> dict[str, Any] | None:
    """None if it is no source text, or if cosmic-ray cannot make it."""
    before = Path(mutation.module_path).read_text(encoding="utf-8")
    operator = cosmic_ray.plugins.get_operator(mutation.operator_name)(**mutation.operator_args)
    try:
        after = mutate_code(before, operator, mutation.occurrence)
        compile(after, "mutant", "exec")
    except (AttributeError, SyntaxError):
        return None
    where = f"{mutation.module_path}:{mutation.start_pos[0]}"
    digest = hashlib.sha256(f"{before}\0{after}".encode()).hexdigest()[:12]
    return {
        "id": f"{where}: {mutation.operator_name} {digest}",
        "module": str(mutation.module_path),
        "before": before,
        "after": after,
        "lines": sorted(_statement(mutation.module_path, *mutation.start_pos)),
    }


def _changes_nothing(mutation: MutationSpec) -> bool:
    """Whether it changes the size of a cache, or an annotation, which nothing evaluates."""
    place: tuple[int, int] = mutation.start_pos
    return any(begin <= place < end for begin, end in _without_effect(mutation.module_path))


def _statement(path: Path, line: int, column: int) -> set[int]:
    """The lines of the innermost statement around a place; of one with a body, those before it."""
    best = range(line, line + 1)
    fewest = sys.maxsize
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if isinstance(body, list) else node.end_lineno or 0
            lines = range(node.lineno, max(end, node.lineno) + 1)
            if line in lines and len(lines) < fewest:
                best, fewest = lines, len(lines)
    return set(best)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


@functools.cache
def _without_effect(path: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where annotations, imports for them and sizes of caches begin and end: line and column."""
    found: list[ast.expr | None] = []
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            found.append(node.test)
        elif isinstance(node, ast.AnnAssign | ast.arg):
            found.append(node.annotation)
        elif isinstance(node, ast.keyword) and node.arg in ("strict", "frozen"):  # never happens
            found.append(node.value)
        elif isinstance(node, ast.FunctionDef):
            found.append(node.returns)
            found += [one for one in node.decorator_list if "lru_cache" in ast.unparse(one)]
    return [
        ((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0))
        for one in found
        if one is not None
    ]


def _report(drawn: dict[str, dict[str, Any]], noticed: dict[str, bool], least: float) -> int:
    for name in sorted(drawn):
        if not noticed[name]:
            before, after = (drawn[name][side].splitlines() for side in ("before", "after"))
            lines = [*difflib.unified_diff(before, after, n=0, lineterm="")][3:]
            print("\n".join([f"{name} survived", *lines]))
    count = sum(noticed[name] for name in drawn)
    share = 100 * count / len(drawn) if drawn else 100.0
    print(f"{count} of {len(drawn)} mutants were noticed ({share:.0f} %)")
    return int(share < least)


if __name__ == "__main__":
    sys.exit(main())
