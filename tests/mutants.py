# SPDX-License-Identifier: Apache-2.0
"""Mutate modules, one place at a time, and count the mutants that the tests of their folder notice.

    python -m tests.mutants allocbench/questions/growth.py --most 40

cosmic-ray makes the mutants in a copy of the sources, in build/mutants; the working tree is not
touched. The tests of a module are those of the folder that mirrors its own, or `--tests`. `--most`
draws that many mutants at random, with `--seed`. A folder stands for its modules. Each survivor is
printed; the exit code is 1 if fewer than `--least` percent were noticed. The same command goes on
where an interrupted one stopped.
"""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import os
import random
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import WorkerOutcome, WorkItem, WorkResult

from allocbench.allocators import _core
from allocbench.workloads import _native
from tests import clean_environment, source_copy

FOLDER = source_copy.ROOT / "build/mutants"
_NOT_WORTH_IT = {"core/RemoveDecorator", "core/NumberReplacer"}
"""Decorators of data classes are noticed at once; numbers are mostly lengths of what is shown."""
_SECONDS = 600.0  # of one run of the tests


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH")
    parser.add_argument("--most", type=int, default=0, metavar="N", help="0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--numbers", action="store_true", help="also change numbers")
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
    told = repr((modules, tests, given.most, given.seed, given.numbers, _contents(modules)))
    session = FOLDER / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.sqlite"
    config = session.with_suffix(".toml")
    command = [environment["PYTHON"], "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    config.write_text(
        "[cosmic-ray]\n"
        f"module-path = {[str(path) for path in modules]}\n"
        f"timeout = {_SECONDS}\nexcluded-modules = []\n"
        f"test-command = {shlex.join(command)!r}\n"
        '[cosmic-ray.distributor]\nname = "local"\n'
    )
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the tests fail without a mutant:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    ray = [sys.executable, "-m", "cosmic_ray.cli"]
    if not session.exists():
        subprocess.run([*ray, "init", str(config), str(session)], cwd=copy, check=True)
        with use_db(session, WorkDB.Mode.open) as database:
            _draw(database, given.most, given.seed, given.numbers)
    subprocess.run([*ray, "exec", str(config), str(session)], cwd=copy, env=environment, check=True)
    with use_db(session, WorkDB.Mode.open) as database:
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
    return str(Path("tests", *parts))


def _contents(modules: Sequence[Path]) -> list[str]:
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in modules]


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
    for node in ast.walk(ast.parse(Path(path).read_text(encoding="utf-8"))):
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
