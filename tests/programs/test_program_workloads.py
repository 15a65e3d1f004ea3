# SPDX-License-Identifier: Apache-2.0
"""Programs as workloads, with a stand-in for PyTorch and for the GPU of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allocbench.commands import COMMANDS, program_command
from allocbench.programs import execution, program
from allocbench.programs import recording_cache as kept
from allocbench.workloads import ALLOC, FREE, MARK, read, recording
from tests.commands import error, folder, run
from tests.commands.test_record import stand_in
from tests.traces import make

__all__ = ["folder", "stand_in"]  # the fixtures, by their imports
STEPPING = """
import sys, helper, torch
print("hello from the program")
a = torch.alloc(helper.SIZE)
for _ in range(100):
    b = torch.alloc(1000)
    torch.optimizer_step()
    torch.free(b)
"""
OPTIM = """
hooks = []
optim = sys.modules["torch.optim"] = ModuleType("torch.optim")
optimizer = sys.modules["torch.optim.optimizer"] = ModuleType("torch.optim.optimizer")
optimizer.register_optimizer_step_post_hook = hooks.append

class record_function:
    def __init__(self, name): self.name = name
    def __enter__(self):
        init()
        annotations.append({"stage": "START", "name": self.name, "device": 0,
                            "time_us": time.time_ns() // 1000})
        time.sleep(1e-5)
    def __exit__(self, *error): pass

autograd = SimpleNamespace(profiler=SimpleNamespace(record_function=record_function))

def optimizer_step(optimizer=None):
    for hook in hooks:
        hook(optimizer, (), {})
"""


@pytest.fixture(autouse=True)
def programs(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of this test's own, and a program of two files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(stand_in / "cache"))
    with (stand_in / "site" / "torch" / "__init__.py").open("a") as file:
        file.write(OPTIM)
    Path("helper.py").write_text("SIZE = 5000\n")
    Path("train.py").write_text(STEPPING)


def answered(line: str) -> tuple[str, bool]:
    """The output of a command, and whether it used a stored recording."""
    done = run(line)
    assert done.exit_code == 0, done.output
    return done.stdout, "answered from the recording" in done.stderr


def inspect(options: str = "") -> bool:
    return answered(f"inspect {options} -- {sys.executable} train.py --lr 3")[1]


@pytest.mark.parametrize(
    "line",
    [
        "compare --time 0 --no-min-capacity --allocators caching,bfc --json -",
        "fit --allocators caching --time-limit 0 --json -",
        "explain --json -",
        "tune --budget 3 --json -",
        "recommend --json -",
        "plan --json -",
        "sweep --allocators caching --json -",
        "replay --allocator caching --time 0 --json -",
    ],
)
def test_a_program_is_a_workload_everywhere(line: str) -> None:
    stdout, from_cache = answered(f"{line} -- {sys.executable} train.py")
    assert not from_cache
    json.loads(stdout)  # the program's own output is not among it
    assert answered(f"{line} -- {sys.executable} train.py")[1]


def test_every_command_with_a_workload_takes_a_program() -> None:
    taking = {one.name for one in COMMANDS if program_command.takes_program(one.load().run)}
    wanted = {"compare", "fit", "explain", "tune", "recommend", "plan", "inspect", "sweep"}
    assert taking == wanted | {"replay", "check", "diff", "whatif"}


def test_a_program_is_named_by_its_script_and_ends_after_its_steps() -> None:
    stdout, _ = answered(f"inspect --steps 3 -- {sys.executable} train.py")
    assert stdout.startswith("train\n")
    line = "compare --time 0 --no-min-capacity --allocators naive --steps 3 --json -"
    (row,) = json.loads(answered(f"{line} -- {sys.executable} train.py")[0])
    assert (row["workload"], row["max_load"]) == ("train", 6000)
    done = run(f"inspect --steps 3 -- {sys.executable} train.py")
    assert "4 optimizer steps, the first a warm-up" in done.stderr
    assert "it was stopped there" in done.stderr


def test_a_program_together_with_a_trace() -> None:
    line = "compare --time 0 --no-min-capacity --allocators naive --json - good.csv"
    rows = json.loads(answered(f"{line} -- {sys.executable} train.py")[0])
    assert [row["workload"] for row in rows] == ["good", "train"]


def test_the_second_question_is_answered_from_the_cache() -> None:
    assert not inspect()
    assert inspect()
    assert not inspect("--rerun")
    assert not inspect("--steps 7")


def test_a_changed_dependency_invalidates_the_stored_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not inspect()
    Path("helper.py").write_text("SIZE = 6000\n")
    assert not inspect()
    assert inspect()
    Path("unrelated.py").write_text("")
    assert inspect()
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    assert not inspect()
    monkeypatch.delenv("PYTORCH_ALLOC_CONF")
    assert inspect()
    Path("helper.py").unlink()
    assert run(f"inspect -- {sys.executable} train.py --lr 3").exit_code == 2


def test_a_changed_file_on_the_command_line_invalidates_the_stored_recording() -> None:
    Path("a.toml").write_text("x = 1")
    line = f"inspect -- {sys.executable} train.py --config=a.toml"
    assert not answered(line)[1]
    assert answered(line)[1]
    Path("a.toml").write_text("x = 2")
    assert not answered(line)[1]


def test_another_folder_is_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not inspect()
    shutil.copytree(".", "copy", ignore=shutil.ignore_patterns("cache", "copy"))
    monkeypatch.chdir("copy")
    assert not inspect()


@pytest.mark.parametrize("damaged", ["about.json", "0.parquet"])
@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "other", "gone"])
def test_a_damaged_entry_is_recorded_again(damaged: str, damage: str) -> None:
    assert not inspect()
    (file,) = Path("cache").rglob(damaged)
    whole = file.read_bytes()
    changed = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
    other = {"about.json": b'{"files": {}, "traces": [3]}', "0.parquet": b"PAR1"}[damaged]
    kinds = {"cut": whole[:-20], "empty": b"", "changed": changed, "other": other}
    file.unlink()
    if damage in kinds:
        file.write_bytes(kinds[damage])
    assert [inspect(), inspect()] == [False, True]


def test_the_environment_is_a_dependency(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable of any name, but not what names a terminal."""
    Path("train.py").write_text(
        "import os, torch\nfor _ in range(int(os.environ.get('BATCH', 8))): torch.alloc(1000)\n"
    )
    line = "compare --time 0 --no-min-capacity --allocators naive --json -"

    def load() -> tuple[int, bool]:
        stdout, from_cache = answered(f"{line} -- {sys.executable} train.py")
        return json.loads(stdout)[0]["max_load"], from_cache

    assert load() == (8000, False)
    monkeypatch.setenv("BATCH", "256")
    assert load() == (256000, False)
    monkeypatch.setenv("TERM", "another")
    monkeypatch.setenv("SSH_CONNECTION", "1.2.3.4")
    assert load() == (256000, True)
    monkeypatch.delenv("BATCH")
    assert load() == (8000, True)


def test_variables_of_a_session_are_named_in_full() -> None:
    """A program may read a variable whose name begins like one of a shell or a terminal."""
    own = {"PROMPT", "PROMPT_LENGTH", "HISTORY", "WINDOW", "WINDOW_SIZE", "TERMS", "SSH_HOSTS"}
    own |= {"DESKTOP_BATCH", "GPG_BATCH", "STYLE", "PS5", "BATCH", "_BATCH"}
    session = {"_", "PWD", "OLDPWD", "SHLVL", "PS1", "PROMPT_COMMAND", "HISTSIZE", "COLUMNS"}
    session |= {"TERM", "TERM_PROGRAM", "COLORTERM", "SSH_CONNECTION", "TMUX", "TMUX_PANE"}
    session |= {"DISPLAY", "WINDOWID", "XDG_SESSION_ID", "VSCODE_PID", "PYTEST_CURRENT_TEST"}
    assert set(kept.lasting(dict.fromkeys(own | session, ""))) == own


def test_another_python_of_the_same_name_is_another_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As in two virtual environments whose Pythons are links to the same one."""
    path = os.environ["PATH"]
    for number, expected in ((1, False), (2, False), (1, True)):
        folder = tmp_path / f"environment{number}"
        folder.mkdir(exist_ok=True)
        (folder / "python").unlink(missing_ok=True)
        (folder / "python").symlink_to(sys.executable)
        monkeypatch.setenv("PATH", f"{folder}:{path}")
        assert answered("inspect -- python train.py")[1] is expected


READING = """
import json, pathlib, torch
try:
    from local_settings import SIZE
except ImportError:
    SIZE = 5000
for name in ("a.json", "missing.json"):
    try:
        SIZE += json.load(open(name))["more"]
    except OSError:
        pass
torch.alloc(SIZE)
pathlib.Path("log.txt").write_text("written by the program")
pathlib.Path("log.txt").read_text()
"""


def test_the_files_that_a_program_reads_are_dependencies() -> None:
    """Also a file and a module that it looked for in vain, but not one that it wrote first."""
    Path("train.py").write_text(READING)
    Path("a.json").write_text('{"more": 1}')
    assert [inspect(), inspect()] == [False, True]
    changes = {
        "a.json": '{"more": 2}',
        "missing.json": '{"more": 3}',
        "local_settings.py": "SIZE = 7000",
    }
    for name, text in changes.items():
        Path(name).write_text(text)
        assert [inspect(), inspect()] == [False, True], name
    Path("log.txt").write_text("changed")
    os.utime("a.json")
    assert inspect()
    Path("a.json").unlink()
    assert not inspect()


def test_a_program_that_changes_what_it_has_read_is_run_each_time() -> None:
    Path("train.py").write_text(
        "import pathlib, torch\ncount = pathlib.Path('count')\n"
        "size = int(count.read_text())\ntorch.alloc(size)\ncount.write_text(str(size + 1))\n"
    )
    Path("count").write_text("1000")
    done = run(f"inspect -- {sys.executable} train.py")
    assert "then changed" in done.stderr
    assert "/count)" in done.stderr
    assert not inspect()


def test_what_a_process_reads_that_allocates_nothing_is_a_dependency() -> None:
    """The one that starts the processes which do."""
    Path("start.py").write_text(
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, 'train.py', open('size').read()])\n"
    )
    Path("train.py").write_text("import sys, torch\ntorch.alloc(int(sys.argv[1]))\n")
    Path("size").write_text("1000")
    line = f"inspect -- {sys.executable} start.py"
    assert [answered(line)[1], answered(line)[1]] == [False, True]
    Path("size").write_text("2000")
    assert [answered(line)[1], answered(line)[1]] == [False, True]
    with Path("train.py").open("a") as file:
        file.write("torch.alloc(5)\n")
    assert not answered(line)[1]


def test_an_installed_package_is_a_dependency(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    (site / "tool-1.0.dist-info").mkdir(parents=True)
    (site / "tool.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ["PYTHONPATH"]]))
    Path("train.py").write_text("import tool, torch\ntorch.alloc(5)\n")
    assert [inspect(), inspect()] == [False, True]
    (site / "tool-1.0.dist-info").rename(site / "tool-1.1.dist-info")
    assert not inspect()


def test_a_recording_is_for_its_user_alone() -> None:
    assert not inspect()
    (entry,) = Path("cache/allocbench/programs").iterdir()
    assert Path("cache/allocbench").stat().st_mode & 0o777 == 0o700
    assert entry.stat().st_mode & 0o777 == 0o700


def test_secrets_of_a_command_line_are_not_recorded() -> None:
    line = f"record -o t.parquet -- {sys.executable} train.py --token abc123 --api-key=def456"
    assert run(line).exit_code == 0
    text = str(read("t.parquet").provenance)
    assert "--token" in text
    assert "abc123" not in text
    assert "def456" not in text


def test_the_cache_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST", 2)
    for number in (1, 2, 3):
        answered(f"inspect --steps {number} -- {sys.executable} train.py")
    assert len(list(Path("cache/allocbench/programs").iterdir())) == 2


def last_line(line: str) -> str:
    done = run(line)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    return str(done.stderr.splitlines()[-1])


def test_mistakes_are_errors_of_one_line() -> None:
    assert error("fit -- nosuch x") == "error: nosuch: no such program\n"
    assert error("fit -- ./good.csv").startswith("error: ./good.csv: you may not execute this file")
    assert error("fit --").startswith("error: --: no command follows")
    assert "--steps is for a program" in error("fit good.csv --steps 3")
    assert "unexpected extra argument" in error(f"fit good.csv -- {sys.executable} train.py")
    assert "--timeout is for null GPUs" in error(f"fit --timeout 3 -- {sys.executable} train.py")
    nothing = f"inspect -- {sys.executable} -c pass"
    assert last_line(nothing).endswith("it allocated nothing on a GPU through PyTorch")


def test_a_program_that_fails_keeps_nothing() -> None:
    Path("train.py").write_text("import torch\ntorch.alloc(9)\nraise SystemExit(7)\n")
    told = last_line(f"fit -- {sys.executable} train.py")
    assert told == f"error: {sys.executable} train.py: exit code 7; what it printed is above"
    assert not list(Path("cache").rglob("*.parquet"))
    Path("train.py").write_text("import os, torch\ntorch.alloc(9)\nos.kill(os.getpid(), 11)\n")
    told = last_line(f"fit -- {sys.executable} train.py")
    assert "exit code 139 (SIGSEGV); what" in told


def test_the_error_of_a_program_is_its_exception_though_a_launcher_prints_more() -> None:
    lines = ["ValueError: an earlier one", "[rank0]: torch.AcceleratorError: the last one"]
    lines += ["torch.distributed.elastic.multiprocessing.errors.ChildFailedError:", "=====", ""]
    printed = r"\n".join(lines)
    Path("train.py").write_text(f"import sys\nprint('{printed}', file=sys.stderr)\nsys.exit(1)\n")
    told = last_line(f"check --device l4 -- {sys.executable} train.py")
    assert told.endswith("exit code 1; [rank0]: torch.AcceleratorError: the last one")
    Path("train.py").write_text("raise SystemExit('give a file')\n")
    told = last_line(f"check --device l4 -- {sys.executable} train.py")
    assert told.endswith("exit code 1; give a file")


def test_a_script_may_fail_after_a_program_was_ended_at_its_steps() -> None:
    Path("train.py").write_text("import torch\n" + "torch.alloc(9)\ntorch.optimizer_step()\n" * 3)
    Path("run.sh").write_text(f"{sys.executable} train.py; exit 1\n")
    done = run("inspect --steps 1 -- bash run.sh")
    assert done.exit_code == 0, done.output
    assert "the command then ended with exit code 1" in done.stderr
    assert last_line("inspect --steps 3 -- bash run.sh").startswith(
        "error: bash run.sh: exit code 1"
    )


def test_processes_that_their_parent_terminates_are_recorded() -> None:
    Path("train.py").write_text(
        "import multiprocessing, time, torch\n"
        "def work(ready):\n"
        "    torch.alloc(9)\n"
        "    ready.put(1)\n"
        "    time.sleep(1000)\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    ready = context.SimpleQueue()\n"
        "    processes = [context.Process(target=work, args=(ready,)) for _ in range(2)]\n"
        "    [process.start() for process in processes]\n"
        "    [ready.get() for _ in processes]\n"
        "    [process.terminate() for process in processes]\n"
        "    [process.join() for process in processes]\n"
        "    assert [process.exitcode for process in processes] == [-15, -15]\n"
    )
    done = run(f"inspect -- {sys.executable} train.py")
    assert done.exit_code == 0, done.stderr
    assert "process1-gpu0" in done.stderr
    assert "see fit --other" in done.stderr


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    Path("train.py").write_text(
        "import torch, time, pathlib\ntorch.alloc(9)\npathlib.Path('ready').touch()\n"
        "time.sleep(100)\n"
    )
    program = (
        "from allocbench.workloads import recording\nrecording.has_cuda = lambda: True\n"
        "from allocbench.cli import app\napp()\n"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([python_path(), os.environ["PYTHONPATH"]])
    }
    process = subprocess.Popen(
        [sys.executable, "-c", program, "inspect", "--", sys.executable, "train.py"],
        env=environment,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler) and None,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not Path("ready").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate()
    assert process.returncode == 130
    assert stdout == b""
    assert stderr.count(b"Traceback") <= 1  # that of the program itself
    assert not list(Path("cache").rglob("*.parquet"))


def python_path() -> str:
    return str(Path(recording.__file__).resolve().parents[1])


def test_the_peaks_and_ends_of_steps() -> None:
    grows = [(ALLOC, 0, 9), (MARK, 0, 0), (ALLOC, 1, 512), (MARK, 0, 0)]
    grows += [(ALLOC, 2, 512), (MARK, 0, 0)]
    assert program.steps(make(grows, labels=("step",))).kept == 0, "one step is compared"
    grows += [(ALLOC, 3, 512), (MARK, 0, 0)]
    found = program.steps(make(grows, labels=("step",)))
    assert found.peaks == found.ends == (9, 521, 1033, 1545)
    assert (found.grew, found.kept) == (512, 512)
    told = program.sentences(found, False)
    assert "memory still grew in the last one, by 512 B" in told[0]
    assert told[1].startswith("every step leaves 512 B or more behind")
    settled = [(ALLOC, 0, 9), (MARK, 0, 0), (FREE, 0, 0), (ALLOC, 0, 8), (MARK, 0, 0)]
    found = program.steps(make([*settled, (ALLOC, 1, 550)], labels=("step",)))
    assert (found.peaks, found.after, found.grew, found.kept) == ((9, 9), 558, 0, 0)
    assert "came after the last step" in program.sentences(found, False)[-1]
    none = program.steps(make([(ALLOC, 0, 9)]))
    assert program.sentences(none, False) == ["it ran to the end without an optimizer step"]
    assert program.sentences(none, True) == ["it was stopped before its first optimizer step"]


@pytest.mark.parametrize(
    ("printed", "why"),
    [
        (
            ["ERROR: 64 is not 128", "[rank0]:[W1126 17:41:06 P.cpp:1624] Warning: x"],
            "ERROR: 64 is",
        ),
        (
            ["a.py: error: unknown --local-rank", "x.ChildFailedError: ", "====="],
            "a.py: error: unk",
        ),
        (["ValueError: bad", "error: exit code 1", "==="], "ValueError: bad"),
        (["no compiler", "W1127 12:55 x", "E1127 12:55 1 torch/distributed/elastic/a.py"], "no"),
        (["KeyError: 'a'", "EOFError"], "KeyError"),
        (
            ["ImportError: ..., which the null GPU does not have", "ImportError: no a"],
            "ImportError: ..",
        ),
        (["KeyError: 'a'", "subprocess.CalledProcessError: Command 'x' ..."], "KeyError"),
        (["subprocess.CalledProcessError: Command 'x' ..."], "subprocess.CalledProcessError"),
        (["x", "EOFError: no input"], "EOFError"),
        (["hello", " "], "hello"),
        ([], "it printed nothing"),
    ],
)
def test_the_line_that_says_why_a_program_failed(printed: list[str], why: str) -> None:
    assert execution._reason(printed).startswith(why)
