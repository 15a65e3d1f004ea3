# SPDX-License-Identifier: Apache-2.0
"""An interrupt ends a command quietly, even if Python would drop or replace it."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import signal, sys, time, weakref
from allocbench import interrupts

class Object:
    pass

def interrupt(*_):
    signal.raise_signal(signal.SIGINT)

{definitions}

with interrupts.quiet():
    print("began", flush=True)
    {body}
    print("went on")
    while True:
        time.sleep(0.01)
"""


def ended(body: str, definitions: str = "") -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a program with this body."""
    program = PROGRAM.format(body=body.replace("\n", "\n    "), definitions=definitions)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_an_interrupt_is_an_exit_code() -> None:
    assert ended("interrupt()") == (130, "began\n", "")


@pytest.mark.parametrize(
    ("body", "definitions"),
    [
        ("one = Object()\nref = weakref.ref(one, interrupt)\ndel one", ""),
        ("Finalized()", "class Finalized:\n    __del__ = interrupt"),
    ],
    ids=["weak reference", "destructor"],
)
def test_an_interrupt_where_exceptions_are_dropped_is_not_lost(body: str, definitions: str) -> None:
    assert ended(body, definitions) == (130, "began\nwent on\n", "")


def test_an_interrupt_during_an_import_is_not_lost() -> None:
    """The lock of a module is dropped by a callback of a weak reference."""
    body = """
def trace(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "cb":
        sys.setprofile(None)
        interrupt()
sys.setprofile(trace)
import this"""
    code, out, error = ended(body)
    assert (code, error) == (130, "")
    assert out.endswith("went on\n")


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    interrupt()\nexcept BaseException as error:\n    raise RuntimeError from error",
        "try:\n    interrupt()\nexcept BaseException:\n    {}['key']",
        "type('Class', (), {'name': type('N', (), {'__set_name__': interrupt})()})",
    ],
    ids=["cause", "context", "set_name"],
)
def test_an_error_that_replaces_an_interrupt_is_one(body: str) -> None:
    assert ended(body) == (130, "began\n", "")


def test_other_errors_are_reported() -> None:
    code, _, error = ended("raise ValueError('wrong')")
    assert code == 1
    assert error.endswith("ValueError: wrong\n")
    code, _, error = ended(
        "Finalized()\ninterrupt()", "class Finalized:\n    def __del__(self): 1 / 0"
    )
    assert code == 130
    assert "ZeroDivisionError" in error


def test_after_the_block_an_interrupt_ends_the_process() -> None:
    after = "import signal\nfrom allocbench import interrupts\nwith interrupts.quiet():\n    pass\n"
    program = f"{after}signal.raise_signal(signal.SIGINT)\nprint('went on')\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (-2, "", "")
