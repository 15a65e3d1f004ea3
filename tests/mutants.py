# SPDX-License-Identifier: Apache-2.0
"""Mutate modules, one place at a time, and count the mutants that the tests of their folder notice.

    python -m tests.mutants allocbench/questions/growth.py --most 40

cosmic-ray makes the mutants in a copy of the sources, in build/mutants; the working tree is not
touched. The tests of a module are those of the folder that mirrors its own, or `--tests`. They run
once to learn which test runs which lines. For each mutant, those that run its line come first, the
quickest at the beginning, then the others of their files, then all others, which may run the line
in another process. `--quick` runs only the first of these, and of them only what takes some seconds
of a processor: what it does not notice may be noticed by others.

`--most` draws that many mutants at random, with `--seed`. A folder stands for its modules. Each
survivor is printed; the exit code is 1 if fewer than `--least` percent were noticed. The same
command goes on where an interrupted one stopped; where tests have changed, it begins again, or with
`--survivors` tries only those that were left.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from cosmic_ray.commands import init
from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkerOutcome, WorkItem, WorkResult

from allocbench.allocators import _core
from allocbench.workloads import _native
from tests import clean_environment, source_copy

FOLDER = source_copy.ROOT / "build/mutants"
_NOT_WORTH_IT = {"core/RemoveDecorator", "core/NumberReplacer"}
"""Decorators of data classes are noticed at once; numbers are mostly lengths of what is shown."""
_SECONDS = 3600.0  # of one run of the tests, by the clock; processors end it much sooner
_QUICK = 20.0  # seconds of a processor
_Tests = dict[str, dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--numbers", action="store_true", help="also change numbers")
    parser.add_argument("--quick", action="store_true", help="only the quickest tests of a line")
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
    copy, environment = _copied()
    told = repr((modules, tests, given.most, given.seed, given.numbers, _digests(modules)))
    session = FOLDER / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.sqlite"
    lines = session.with_suffix(".json")
    tested = repr(_digests(sorted(Path("tests").rglob("*.py"))))
    known = json.loads(lines.read_text(encoding="utf-8")) if lines.exists() else {}
    changed = known.get("tested") != tested
    if changed:
        ran = _lines_run(modules, tests, copy, environment)
        lines.write_text(json.dumps({"tested": tested, "ran": ran}), encoding="utf-8")
    else:
        ran = known["ran"]
    os.environ.update(environment)
    os.chdir(copy)
    with use_db(session, WorkDB.Mode.create) as database:
        if not database.num_work_items:
            init(modules, database, {})
            _draw(database, given.most, given.seed, given.numbers)
        results = dict(database.results)
        again = {
            job
            for job, result in results.items()
            if changed
            and result.worker_outcome != WorkerOutcome.SKIPPED
            and not (given.survivors and result.is_killed)
        }
        for item in database.work_items:
            if item.job_id in again or item.job_id not in results:
                database.set_result(item.job_id, _tried(item, ran, given.quick))
        return _report(database, given.least)


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


def _digests(files: Iterable[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]


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


def _pytest(python: str, *arguments: str) -> list[str]:
    fixed = ["-x", "-q", "-p", "no:cacheprovider", "-p", "tests.lines_run"]
    return [python, "-m", "pytest", *fixed, *arguments]


def _lines_run(
    modules: Sequence[Path], tests: Sequence[str], copy: Path, environment: dict[str, str]
) -> _Tests:
    """For each test, its seconds and the lines that it runs; the tests must pass."""
    target = FOLDER / "lines.json"
    of = [f"--lines-of={module}" for module in modules]
    command = _pytest(environment["PYTHON"], *of, f"--lines-to={target}", *tests)
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the tests fail without a mutant:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    ran: _Tests = json.loads(target.read_text(encoding="utf-8"))
    return ran


def _tried(item: WorkItem, ran: _Tests, quick: bool) -> WorkResult:
    (mutation, *_) = item.mutations
    module = str(mutation.module_path)
    lines = _statement(mutation.module_path, *mutation.start_pos)
    first = [name for name, test in ran.items() if lines & set(test["lines"].get(module, ()))]
    if not first:  # a line that the import runs
        first = [name for name, test in ran.items() if module in test["lines"]]
    first.sort(key=lambda name: ran[name]["seconds"])
    files = {name.split("::")[0] for name in first}
    beside = [name for name in ran if name.split("::")[0] in files]
    chosen = list(dict.fromkeys([*first, *beside, *ran]))
    if quick:
        spent = accumulate(ran[name]["seconds"] for name in first)
        chosen = [name for name, so_far in zip(first, spent, strict=True) if so_far < _QUICK]
    order = FOLDER / "order.txt"
    order.write_text("\n".join(chosen), encoding="utf-8")
    seconds = 60 + int(5 * sum(ran[name]["seconds"] for name in chosen))
    known = sorted({name.split("::")[0] for name in chosen})
    options = [f"--order={order}", f"--seconds={seconds}"]
    command = _pytest(os.environ["PYTHON"], *options, *known)
    return mutate_and_test(item.mutations, shlex.join(command), _SECONDS)


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


def _draw(database: WorkDB, most: int, seed: int, numbers: bool) -> None:
    """Skip the mutants that are not worth it, and all but some of the others."""
    left_out = _NOT_WORTH_IT - ({"core/NumberReplacer"} if numbers else set())
    items = sorted(database.work_items, key=lambda item: repr(item.mutations))
    worth = [
        item
        for item in items
        if item.mutations[0].operator_name not in left_out and not _changes_nothing(item)
    ]
    drawn = random.Random(seed).sample(worth, most) if 0 < most < len(worth) else worth
    kept = {item.job_id for item in drawn}
    skipped = [item.job_id for item in items if item.job_id not in kept]
    database.set_multiple_results(skipped, WorkResult(WorkerOutcome.SKIPPED))


def _changes_nothing(item: WorkItem) -> bool:
    """Whether it changes the size of a cache, or an annotation, which nothing evaluates."""
    (mutation, *_) = item.mutations
    place: tuple[int, int] = mutation.start_pos
    return any(begin <= place < end for begin, end in _without_effect(mutation.module_path))


@functools.cache
def _without_effect(path: Path) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Where the annotations and the sizes of caches of a module begin and end: line and column."""
    found: list[ast.expr | None] = []
    for node in ast.walk(_parsed(path)):
        if isinstance(node, ast.AnnAssign | ast.arg):
            found.append(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            found.append(node.returns)
            found += [one for one in node.decorator_list if "lru_cache" in ast.unparse(one)]
    return [
        ((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0))
        for one in found
        if one is not None
    ]


def _report(database: WorkDB, least: float) -> int:
    results = {job: one for job, one in database.results if one.worker_outcome != "skipped"}
    items = {item.job_id: item for item in database.work_items}
    survivors = [job for job, result in results.items() if not result.is_killed]
    for job in sorted(survivors, key=lambda job: repr(items[job].mutations)):
        print(_told(items[job], results[job]))
    noticed = len(results) - len(survivors)
    share = 100 * noticed / len(results) if results else 100.0
    print(f"{noticed} of {len(results)} mutants were noticed ({share:.0f} %)")
    return int(share < least)


def _told(item: WorkItem, result: WorkResult) -> str:
    (mutation, *_) = item.mutations
    changed = [
        line
        for line in (result.diff or "").splitlines()
        if line[:1] in "+-" and line[:3] not in ("+++", "---")
    ]
    where = f"{mutation.module_path}:{mutation.start_pos[0]}"
    return "\n".join([f"{where}: {mutation.operator_name} survived", *changed])


if __name__ == "__main__":
    sys.exit(main())
