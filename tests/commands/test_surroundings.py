# SPDX-License-Identifier: Apache-2.0
"""Every command without a terminal, on 40 columns, with LC_ALL=C and TERM=dumb.

Its output goes to a file, to a pipe that is closed after a line, and to a full disk; it is
interrupted; and its file is where none can be written.
"""

import random
import shutil
import signal
from itertools import cycle
from pathlib import Path

import pytest

from allocbench.commands import COMMANDS
from allocbench.workloads import write
from tests.commands import EVENTS, QUICK
from tests.commands.surroundings import FIRST_LINE, FULL, Job, Outcome, run
from tests.questions.test_whatif import training
from tests.traces import make

DATA = Path(__file__).parents[1] / "data"
SHOWN = {
    "list": "list",
    "compare": f"compare good.csv --allocators bfc,naive {QUICK}",
    "recommend": "recommend good.csv --device sim:64MiB --orders 0 --budget 2",
    "fit": "fit good.csv --allocators bfc --time-limit 0",
    "serving": "serving llama-3.1-8b",
    "check": "check good.csv --device sim:1GiB",
    "explain": "explain good.csv --device sim:2MiB",
    "tune": "tune good.csv --budget 2",
    "sweep": "sweep good.csv --allocators naive -o new.jsonl --workers 1",
    "verify": "verify cold.pickle.gz",
    "replay": f"replay good.csv --allocator bfc {QUICK}",
    "inspect": "inspect good.csv",
    "league": "league --allocators naive",
    "conform": "conform naive",
    "plan": "plan good.csv --planner best_fit",
    "convert": "convert good.csv -o -",
    "diff": "diff good.csv good.csv",
    "whatif": "whatif training.parquet --allocator naive",
}
"""Commands that write to standard output."""
WRITING = {
    "compare": f"{SHOWN['compare']} --json",
    "report": "report results.json -o",
    "recommend": f"{SHOWN['recommend']} --json",
    "fit": f"{SHOWN['fit']} --json",
    "serving": f"{SHOWN['serving']} --json",
    "check": f"{SHOWN['check']} --json",
    "explain": f"{SHOWN['explain']} --json",
    "whatif": f"{SHOWN['whatif']} --json",
    "tune": f"{SHOWN['tune']} --json",
    "sweep": "sweep good.csv --allocators naive --workers 1 -o",
    "replay": f"{SHOWN['replay']} --json",
    "league": f"{SHOWN['league']} --json",
    "conform": f"{SHOWN['conform']} --json",
    "plan": f"{SHOWN['plan']} -o",
    "convert": "convert good.csv -o",
    "diff": f"{SHOWN['diff']} --json",
}
"""Commands that write a file, whose name comes last."""
ELSEWHERE = {"record", "run"}
"""Commands that need PyTorch, and are tested with it."""
READ_ONLY = "/sys/new.csv"
ENDED = [command for command in SHOWN if command != "sweep"]
"""`sweep` starts processes, which takes seconds; `test_sweep.py` ends it."""
SENT = dict(zip(ENDED, cycle((signal.SIGINT, signal.SIGTERM, signal.SIGHUP)), strict=False))
Outcomes = dict[tuple[str, str], Outcome]


def folder(path: Path) -> Path:
    write(make(EVENTS), path / "good.csv")
    write(training(), path / "training.parquet")
    shutil.copy(DATA / "recordings/cold.pickle.gz", path)
    return path


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """By command and surroundings. All run in one process and its forks."""
    source = folder(tmp_path_factory.mktemp("files"))
    jobs = {(command, ""): Job(line) for command, line in SHOWN.items()}
    kept = dict(zip(jobs, run([*jobs.values()], source), strict=True))
    rng = random.Random(1)
    more = {(command, READ_ONLY): Job(f"{line} {READ_ONLY}") for command, line in WRITING.items()}
    for command in ENDED:
        line, sent = SHOWN[command], SENT[command]
        more |= {(command, output): Job(line, output) for output in (FIRST_LINE, FULL)}
        delay = rng.random() * kept[command, ""].seconds
        more[command, sent.name] = Job(line, interrupt=sent, delay=delay)
    return kept | dict(zip(more, run([*more.values()], source), strict=True))


def test_every_command_is_tried() -> None:
    assert {*SHOWN, *WRITING, *ELSEWHERE} == {command.name for command in COMMANDS}


@pytest.mark.parametrize("command", SHOWN)
def test_a_narrow_output_without_a_terminal(outcomes: Outcomes, command: str) -> None:
    kept = outcomes[command, ""]
    assert (kept.code, kept.err) == (0, "")
    assert len(kept.out) > 20
    assert "\x1b" not in kept.out


@pytest.mark.parametrize("command", ENDED)
def test_a_pipe_that_is_closed_after_a_line(outcomes: Outcomes, command: str) -> None:
    ended = outcomes[command, FIRST_LINE]
    assert ended.code in (0, 1)  # 0: everything had been written before
    assert ended.err == ""
    assert ended.out.count("\n") == 1


@pytest.mark.parametrize("command", ENDED)
def test_a_full_disk_behind_standard_output(outcomes: Outcomes, command: str) -> None:
    ended = outcomes[command, FULL]
    assert ended.code == 2
    assert ended.err.startswith("error: standard output: cannot write: No space left on device")
    assert ended.err.count("\n") == 1
    assert ended.new == []


@pytest.mark.parametrize("command", WRITING)
def test_a_target_that_cannot_be_written(outcomes: Outcomes, command: str) -> None:
    ended = outcomes[command, READ_ONLY]
    assert (ended.code, ended.out, ended.new) == (2, "", [])
    assert ended.err.startswith(f"error: {READ_ONLY}: cannot write: ")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("command", ENDED)
def test_a_signal_at_any_moment(outcomes: Outcomes, command: str) -> None:
    """A command that has ended, or nearly, has the code 0 or that of the signal."""
    sent = SENT[command]
    ended = outcomes[command, sent.name]
    assert ended.code in (128 + sent, 0, -sent)
    assert ended.err == ""
    assert ended.new == []
