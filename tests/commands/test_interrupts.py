# SPDX-License-Identifier: Apache-2.0
"""An interrupt ends a command quietly, even if Python would drop or replace it."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import signal, sys, time, weakref
from allocbench import interrupts

class Object:
    pass

def interrupt(*_):
    signal.raise_signal(signal.{signal})

{definitions}

with interrupts.quiet():
    print("began", flush=True)
    {body}
    print("went on")
    while True:
        time.sleep(0.01)
"""


def ended(
    body: str, definitions: str = "", sent: signal.Signals = signal.SIGINT
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a program with this body."""
    indented = body.replace("\n", "\n    ")
    program = PROGRAM.format(body=indented, definitions=definitions, signal=sent.name)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


SIGNALS = pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])


@SIGNALS
def test_an_interrupt_is_an_exit_code(sent: signal.Signals) -> None:
    assert ended("interrupt()", sent=sent) == (128 + sent, "began\n", "")


@pytest.mark.parametrize(
    ("body", "definitions"),
    [
        ("one = Object()\nref = weakref.ref(one, interrupt)\ndel one", ""),
        ("Finalized()", "class Finalized:\n    __del__ = interrupt"),
    ],
    ids=["weak reference", "destructor"],
)
@SIGNALS
def test_an_interrupt_where_exceptions_are_dropped_is_not_lost(
    body: str, definitions: str, sent: signal.Signals
) -> None:
    assert ended(body, definitions, sent) == (128 + sent, "began\nwent on\n", "")


@SIGNALS
def test_an_interrupt_that_is_sent_again_too_early_is_not_lost(sent: signal.Signals) -> None:
    definitions = """
import threading
class Finalized:
    __del__ = interrupt
start = threading.Timer.start
def slow(timer):
    threading.Timer.start = start
    start(timer)
    time.sleep(1)
threading.Timer.start = slow
"""
    assert ended("Finalized()", definitions, sent) == (128 + sent, "began\nwent on\n", "")


@SIGNALS
def test_an_interrupt_in_compiled_text_is_an_exit_code(
    sent: signal.Signals, tmp_path: Path
) -> None:
    """Python remembers a KeyboardInterrupt that leaves `exec`, and ends a module by SIGINT."""
    program = PROGRAM.format(body="exec('interrupt()')", definitions="", signal=sent.name)
    (tmp_path / "interrupted.py").write_text(program)
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (128 + sent, "began\n", "")


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
@SIGNALS
def test_an_error_that_replaces_an_interrupt_is_one(body: str, sent: signal.Signals) -> None:
    assert ended(body, sent=sent) == (128 + sent, "began\n", "")


def test_a_file_that_is_being_written_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("before")
    body = f"""
from allocbench.base.files import whole_file
with whole_file({str(target)!r}) as file:
    file.write(b"half")
    interrupt()"""
    assert ended(body, sent=signal.SIGTERM) == (143, "began\n", "")
    assert target.read_text() == "before"
    assert list(tmp_path.iterdir()) == [target]


CHILD = """
import signal, sys, time
from pathlib import Path

def end(*_):
    Path("ended").touch()
    sys.exit(9)

for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, end)
Path("began").touch()
while True:
    time.sleep(0.01)
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_terminate_goes_to_the_program_that_runs(
    sent: signal.Signals, tmp_path: Path
) -> None:
    """The program decides how it ends, and its exit code is kept."""
    program = """
import os, sys
from allocbench.base import children
sys.exit(children.run([sys.executable, "child.py"], os.environ).code)
"""
    assert signaled_with_a_child(program, sent, tmp_path) == (9, "")


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_question_about_a_program_ends_with_it(sent: signal.Signals, tmp_path: Path) -> None:
    """Whatever the exit code of the program is: there is no answer, and no error."""
    program = """
import sys
from allocbench import interrupts
from allocbench.null_gpu.launch import Limits
from allocbench.programs import execution as ran
with interrupts.quiet():
    ran.run([sys.executable, "child.py"], "child", "null:h100", Limits())
"""
    assert signaled_with_a_child(program, sent, tmp_path) == (128 + sent, "")


def signaled_with_a_child(program: str, sent: signal.Signals, folder: Path) -> tuple[int, str]:
    """The exit code of a program that gets a signal while its child runs, and its standard error.

    The child must have got the signal as well.
    """
    folder.joinpath("child.py").write_text(CHILD)
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    while not folder.joinpath("began").exists():
        assert parent.poll() is None
        time.sleep(0.01)
    parent.send_signal(sent)
    error = parent.communicate()[1]
    assert folder.joinpath("ended").exists()
    return parent.returncode, error


@SIGNALS
def test_a_signal_that_was_ignored_before_stays_ignored(sent: signal.Signals) -> None:
    """As under nohup."""
    program = f"""
import signal
signal.signal(signal.{sent.name}, signal.SIG_IGN)
from allocbench import interrupts
with interrupts.quiet():
    signal.raise_signal(signal.{sent.name})
signal.raise_signal(signal.{sent.name})
print("went on")"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\n", "")


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
