# SPDX-License-Identifier: Apache-2.0
"""The pytest marker `limit_peak`: a test fails if it needs more GPU memory than allowed.

The fixture `check_memory` is `allocbench.api.check`:

    def test_it_fits(check_memory):
        assert check_memory(train_step, "l4").verdict == "fits"

    @pytest.mark.limit_peak("20GiB", card="l4")   # a limit of what PyTorch reserves
    @pytest.mark.limit_peak(percent=0.5)          # a stored peak, and how much above it is allowed

The test runs in a pytest of its own, with its fixtures, on a null GPU of the card. Peaks are stored
in `peaks.json` next to the test by `pytest --update-peaks`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from allocbench.programs.program import ProgramWorkload
    from allocbench.reports.advice.check import Answer

_MARKER = "limit_peak"
_FILE = "peaks.json"
_PERCENT = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --update-peaks, and let tests and conftest.py import torch where it lacks NVIDIA's
    libraries.
    """
    from allocbench.null_gpu import torch_import

    torch_import.allow()
    parser.getgroup("allocbench").addoption(
        "--update-peaks",
        action="store_true",
        help=f"store the peaks of tests that are marked with {_MARKER} in {_FILE}",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(limit=None, *, card=None, percent={_PERCENT}): fail if the test reserves more "
        "GPU memory than the limit, or without one, if its peak is above the stored one by more "
        "than percent",
    )


@pytest.fixture
def check_memory() -> Callable[..., Answer]:
    """Whether a function, a program or a recording fits a card: see `allocbench.api.check`."""
    from allocbench import api

    return api.check


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the fixtures of marked tests to the process that they run in."""
    for item in items:
        if isinstance(item, pytest.Function) and _marker(item) is not None:
            item.fixturenames.clear()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object | None:
    """Run a marked test on a null GPU instead of here."""
    marker = _marker(pyfuncitem)
    if marker is None:
        return None
    from allocbench.errors import USER_ERRORS, UsageError
    from allocbench.questions import peaks
    from allocbench.testing import PeakError, check_marked

    limit, card, percent = _arguments(*marker.args, **marker.kwargs)
    path = Path(pyfuncitem.path).with_name(_FILE)
    name = pyfuncitem.nodeid.rpartition("/")[2]
    try:
        stored = peaks.read(path)
        updating = pyfuncitem.config.getoption("update_peaks")
        if limit is None and name not in stored and not updating:
            raise UsageError(f"{path.name} has no peak of {name}: pytest --update-peaks stores it")
        baseline = None if limit is not None or updating else stored[name]
        peak = check_marked(_program(pyfuncitem, card), limit, baseline, percent)
        if limit is None and updating:
            peaks.write(path, stored | {name: peak})
    except (PeakError, *USER_ERRORS) as error:
        failure = str(error)
    else:
        return True
    pytest.fail(failure, pytrace=False)


def _arguments(
    limit: str | int | None = None, *, card: str | None = None, percent: float = _PERCENT
) -> tuple[str | int | None, str | None, float]:
    return limit, card, percent


def _marker(item: pytest.Item) -> Any:
    """The marker of a test that is to be run elsewhere."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return None
    from allocbench.testing import is_inside

    return None if is_inside() else marker


def _program(item: pytest.Function, card: str | None) -> ProgramWorkload:
    """A pytest command that runs only this test."""
    from allocbench.programs.program import ProgramWorkload
    from allocbench.testing import settings_for

    config = item.config
    # The current folder is on the path there if it is on the path here.
    safe = () if {"", os.getcwd()} & {*sys.path} else ("-P",)
    command = [
        sys.executable,
        *safe,
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
    ]
    own = config.pluginmanager.get_plugin(__name__)
    if own is not None:  # it was named with -p, and is not installed
        command += ["-p", __name__]
    command += [f"--rootdir={config.rootpath}", f"{item.path}::{item.nodeid.partition('::')[2]}"]
    return ProgramWorkload(tuple(command), settings_for(card), item.name)
