# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest for `tests.mutants`: it collects tests once, and runs them for each mutant.

    python -m pytest -p tests.mutant_runs --mutants FILE --into FILE --first FILE tests/questions

`--mutants` names JSON: a list of objects with a module's path, its original and its mutated source
and the lines of the mutated statement. Each mutant has a process of its own, forked after the
collection, in which the functions of the module get their mutated code; it ends at the first test
that fails, and after a time of a processor. For each, a line of JSON is added to `--into`:
`noticed`, which is null if code outside of functions is mutated, or code that only others run.

The tests are those that run the statement, the quickest first, then the others of their files, then
all; with `--quick`, only those of the first that take that many seconds of a processor in all. So
the tests first run without a mutant, and `--first` gets, for each, its seconds and the lines of the
modules that it runs.
"""

import ast
import builtins
import gc
import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import hypothesis
import pytest
from hypothesis import Phase

_LEAST = 4  # seconds of a processor that the tests of a mutant may take
_TIMES = 2  # as many as without it


def pytest_addoption(parser: pytest.Parser) -> None:
    for name in ("--mutants", "--into", "--first"):
        parser.addoption(name, type=Path)
    parser.addoption("--quick", type=float, default=0.0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Let hypothesis not look for the smallest example of a failure: any is enough."""
    phases = (Phase.explicit, Phase.generate)
    hypothesis.settings.register_profile("mutants", hypothesis.settings(), phases=phases)
    hypothesis.settings.load_profile("mutants")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    option = session.config.option
    mutants = json.loads(option.mutants.read_text(encoding="utf-8"))
    for module in {mutant["module"] for mutant in mutants}:  # some are imported by their users
        parts = Path(module).with_suffix("").parts  # allocbench has links to other folders
        with suppress(Exception):  # a hook that only another process imports
            importlib.import_module(
                ".".join(parts if parts[0] == "allocbench" else ("allocbench", *parts))
            )
    gc.unfreeze()  # functions are looked for among all objects
    items = {item.nodeid: item for item in session.items}
    sources = {mutant["module"]: mutant["before"] for mutant in mutants}
    if _in_a_fork(lambda: _record(session, session.items, sources, option.first)):
        raise session.Failed("the tests fail without a mutant")
    ran = json.loads(option.first.read_text(encoding="utf-8"))
    with option.into.open("a", encoding="utf-8") as into:
        for mutant in mutants:
            names = chosen_tests(mutant, ran, option.quick)
            chosen = [items[name] for name in names]
            noticed = _noticed(session, mutant, chosen, ran) if chosen else None
            told = {"id": mutant["id"], "noticed": noticed, "tested": mutant["tested"]}
            into.write(json.dumps(told) + "\n")
            into.flush()
    return True


def chosen_tests(mutant: dict[str, Any], ran: dict[str, Any], quick: float) -> list[str]:
    """The names of the tests for a mutant, in order."""
    module, lines = mutant["module"], set(mutant["lines"])
    first = [name for name, test in ran.items() if lines & set(test["lines"].get(module, ()))]
    if not first:  # a line that the import runs, or another process
        first = [name for name, test in ran.items() if module in test["lines"]]
    if not first:
        return []
    first.sort(key=lambda name: ran[name]["seconds"])
    if quick:
        spent = accumulate(ran[name]["seconds"] for name in first)
        kept = [name for name, so_far in zip(first, spent, strict=True) if so_far < quick]
        return kept or first[:1]
    files = {name.partition("::")[0] for name in first}
    beside = [name for name in ran if name.partition("::")[0] in files]
    return list(dict.fromkeys([*first, *beside, *ran]))


def _noticed(
    session: pytest.Session,
    mutant: dict[str, Any],
    items: Sequence[pytest.Item],
    ran: dict[str, Any],
) -> bool | None:
    changed = _changed(mutant["module"], mutant["before"], mutant["after"])
    if changed is None:
        return None
    most = _LEAST + _TIMES * sum(ran[item.nodeid]["seconds"] for item in items)

    def run() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(most), int(most)))
        for function, code in changed:
            function.__code__ = code
        _run(session, items)

    return _in_a_fork(run) != 0


def _changed(
    module: str, before: str, after: str | ast.Module
) -> list[tuple[FunctionType, CodeType]] | None:
    """The functions of a module that change, and their code; None if other code changes."""
    path = os.path.realpath(module)
    pairs: dict[tuple[str, int], CodeType] = {}

    def compare(old: CodeType, new: CodeType) -> None:
        inner = [
            [one for one in code.co_consts if isinstance(one, CodeType)] for code in (old, new)
        ]
        if old != new:
            pairs[old.co_qualname, old.co_firstlineno] = new
        for one, other in zip(*inner, strict=True):
            compare(one, other)

    try:
        old, new = (compile(source, path, "exec") for source in (before, after))
        compare(old, new)
    except (SyntaxError, ValueError):
        return None
    found = [
        (one, pairs[one.__code__.co_qualname, one.__code__.co_firstlineno])
        for one in gc.get_objects()
        if isinstance(one, FunctionType)
        and (one.__code__.co_qualname, one.__code__.co_firstlineno) in pairs
        and os.path.realpath(one.__code__.co_filename) == path
    ]
    return found or None


def _run(session: pytest.Session, items: Sequence[pytest.Item]) -> None:
    """Run tests until one fails."""
    for item, following in pairwise([*items, None]):
        assert item is not None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if _failures:
            return


def _in_a_fork(run: Callable[[], None]) -> int:
    """What `os.waitpid` tells of a process that runs tests: 0 if none has failed."""
    sys.stdout.flush()
    if child := os.fork():
        return os.waitpid(child, 0)[1]
    code = 1
    try:
        os.setsid()
        for number in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), number)
        run()
        code = int(bool(_failures))
    finally:
        os._exit(code)


_failures: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failures.append(report.nodeid)


class _Marked(ast.NodeTransformer):
    """Puts a call before each statement inside of functions, which notes its line."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._function = False

    def visit(self, node: ast.AST) -> ast.AST:
        outside, self._function = self._function, self._function or isinstance(node, _FUNCTIONS)
        self.generic_visit(node)
        if self._function:
            for name in ("body", "orelse", "finalbody"):
                if isinstance(statements := getattr(node, name, None), list):
                    setattr(node, name, [new for one in statements for new in self._with_mark(one)])
        self._function = outside
        return node

    def _with_mark(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            return [statement]  # a docstring stays the first
        call = ast.parse(f"{_MARK}({self._module!r}, {statement.lineno})").body[0]
        for node in ast.walk(call):
            ast.copy_location(node, statement)
        return [call, statement]


_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef
_MARK = "__allocbench_ran__"


def _record(
    session: pytest.Session, items: Sequence[pytest.Item], sources: dict[str, str], into: Path
) -> None:
    """Run tests, and write the seconds of each and the lines of modules that it runs."""
    ran = set[tuple[str, int]]()
    setattr(builtins, _MARK, lambda module, line: ran.add((module, line)))
    for module, source in sources.items():
        tree = ast.parse(source)
        _Marked(module).visit(tree)
        for function, code in _changed(module, source, tree) or ():
            function.__code__ = code
    tests = {}
    for item, following in pairwise([*items, None]):
        assert item is not None
        ran.clear()
        begin = time.process_time()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        lines: dict[str, list[int]] = {}
        for module, line in sorted(ran):
            lines.setdefault(module, []).append(line)
        seconds = round(time.process_time() - begin, 3)
        tests[item.nodeid] = {"seconds": seconds, "lines": lines}
    into.write_text(json.dumps(tests), encoding="utf-8")
