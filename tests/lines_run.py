# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that finds the lines that each test runs, and runs tests in a given order.

    python -m pytest -p tests.lines_run --lines-of allocbench/questions/growth.py --lines-to FILE
    python -m pytest -p tests.lines_run --order FILE

The first command writes JSON: for each test, its seconds of a processor and the lines of each
module. What another process runs is not seen. The second runs the tests whose names FILE lists,
one a line, in that order, and leaves out all others. `--seconds` ends the run after that time of a
processor.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines-of", action="append", default=[])
    parser.addoption("--lines-to", type=Path)
    parser.addoption("--order", type=Path)
    parser.addoption("--seconds", type=int)


def pytest_configure(config: pytest.Config) -> None:
    if given := config.getoption("--lines-of"):
        config.pluginmanager.register(_Recorder(given, config.getoption("--lines-to")))
    if seconds := config.getoption("--seconds"):
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if order := config.getoption("--order"):
        names = order.read_text(encoding="utf-8").splitlines()
        by_name = {item.nodeid: item for item in items}
        items[:] = [by_name[name] for name in names if name in by_name]


class _Recorder:
    def __init__(self, modules: list[str], target: Path) -> None:
        self._modules = {os.path.realpath(module): module for module in modules}
        self._known: dict[str, str | None] = {}
        self._target = target
        self._tests: dict[str, dict[str, Any]] = {}
        self._now: set[tuple[str, int]] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._now = set()
        begin = time.process_time()
        threading.settrace(self._call)
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)
            lines: dict[str, list[int]] = {}
            for module, line in sorted(self._now):
                lines.setdefault(module, []).append(line)
            seconds = time.process_time() - begin
            self._tests[item.nodeid] = {"seconds": round(seconds, 3), "lines": lines}

    def pytest_sessionfinish(self) -> None:
        self._target.write_text(json.dumps(self._tests), encoding="utf-8")

    def _call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        name = frame.f_code.co_filename
        if name not in self._known:
            self._known[name] = self._modules.get(os.path.realpath(name))
        return self._line if self._known[name] else None

    def _line(self, frame: FrameType, event: str, _argument: object) -> Any:
        if module := self._known[frame.f_code.co_filename]:
            self._now.add((module, frame.f_lineno))
        return self._line
