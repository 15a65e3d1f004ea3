# SPDX-License-Identifier: Apache-2.0
"""What commands print and write for small inputs of every kind is as it was frozen."""

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from allocbench import allocators
from allocbench.commands import COMMANDS
from allocbench.commands.list import PARTS
from allocbench.workloads import read
from allocbench.workloads import write as write_trace
from tests.answer_inputs import chunks, recorded
from tests.commands import drawn_lines, run
from tests.commands.drawn_lines import programs_that_are_not_there
from tests.gold import Gold, facts
from tests.questions.test_error_text import KNOWN
from tests.questions.test_texts_by_version import printed_by_bfc
from tests.questions.test_whatif import training
from tests.tflite_models import tflite_file
from tests.workloads.importers import snapshots
from tests.workloads.memory_dumps import ASSIGNMENT, PROFILE, RANGES
from tests.workloads.serving.test_architectures import LLAMA, write
from tests.workloads.serving.test_requests import AZURE, MOONCAKE

_TIME = re.compile(r"^time .*$", re.MULTILINE)  # of a planner
_MANY = {"check": 60, "fit": 60, "serving": 60, "diff": 48, "run": 72}
_FEW = {"compare": 12, "conform": 6, "recommend": 20, "tune": 20}  # slow ones
_LINES = {
    command.name: drawn_lines.lines(command, (_MANY | _FEW).get(command.name, 36))
    for command in COMMANDS
    if command.name not in ("league", "list", "sweep")
}
_LINES["explain"] += [
    f"explain text{n}.txt{' --device l4' * (n % 2)}{' --json -' * (n % 3 > 1)}"
    for n in range(len(KNOWN))
]
_LINES["explain"] += [
    f"explain {name}{more}"
    for name in ("profile.pb", "buffers.txt", "dump.txt")
    for more in ("", " --json -", " --device l4")
]
_LINES["fit"] += ["fit training.csv --allocators naive --time-limit 60"]  # proven at once
_LINES["list"] = ["list", *(f"list {part}" for part in PARTS)]
_GROUPS = [
    (f"{name}_{n}", lines) for name in _LINES for n, lines in enumerate(chunks(_LINES[name], 6))
]


@pytest.mark.parametrize(("group", "lines"), _GROUPS, ids=[name for name, _ in _GROUPS])
def test_commands(
    group: str, lines: Sequence[str], gold: Gold, in_inputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text on each stream, the steps of progress bars, and the files that are written."""
    steps = list[Any]()
    bar = "rich.progress.Progress"
    monkeypatch.setattr(f"{bar}.add_task", lambda *_, total, **__: steps.append(total))
    monkeypatch.setattr(f"{bar}.update", lambda *_, description, **__: steps.append(description))
    found: dict[str, Any] = {}
    for line in lines:
        steps.clear()
        with programs_that_are_not_there(), _cleared(Path("out")) as folder:
            monkeypatch.setenv("XDG_CACHE_HOME", str(folder.absolute()))
            result = run(line)
            texts = {name: _TIME.sub("", getattr(result, name)) for name in ("stdout", "stderr")}
            found[line] = {
                "code": result.exit_code,
                **{name: _of_text(text) for name, text in texts.items()},
                "files": {path.name: _content(path) for path in folder.glob("new*")},
                "steps": [steps[:1], len(steps), facts(" ".join(sorted(map(str, steps))))],
            }
    gold(f"command_{group}", found)


@pytest.fixture(scope="module", autouse=True)
def _more_inputs(written: Path) -> None:
    """Rows, logs of requests, a model and offsets: what only some commands read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(written)
        for name, options in (("rows", "caching,bfc"), ("other", "naive,tlsf")):
            specs = f"--allocators {options} --device sim:1GiB --time 0"
            assert run(f"compare training.parquet {specs} --json {name}.json").exit_code == 0
        assert run("plan decoding.parquet --planner best_fit -o offsets.csv").exit_code == 0
        write(Path(), LLAMA)
        write_trace(training(temporary=True, scores=True), "layers.parquet")
        tflite_file(Path("model.tflite"))
        Path("buffers.txt").write_text(ASSIGNMENT + RANGES)
        Path("profile.pb").write_bytes(PROFILE)
        Path("dump.txt").write_text(_dump_of_operators())
        Path("blocks.csv").write_text("id,lower,upper,size\na,0,2,4096\nb,1,3,700\nc,2,5,4\n")
        for n, (text, *_) in enumerate(KNOWN.values()):
            Path(f"text{n}.txt").write_text(text)
        data = snapshots.snapshot(recorded(5, 0), keep=0)
        Path("segments.pickle").write_bytes(snapshots.pickled(data))
        Path("requests.jsonl").write_text(MOONCAKE)
        Path("requests.csv").write_text(AZURE)


def _dump_of_operators() -> str:
    """What TensorFlow prints when more operators hold memory than a table shows."""
    made = allocators.make("bfc", allocators.make_device("sim:64MiB"))
    for size in range(1, 13):
        made.allocate(size << 18)
        made.deallocate(made.allocate(size << 10))
    return printed_by_bfc(made.snapshot(), 64 << 20, 32 << 20)


@contextmanager
def _cleared(folder: Path) -> Iterator[Path]:
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _content(path: Path) -> Any:
    """The facts of a text, or the columns of a trace."""
    try:
        return _of_text(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        return read(path).columns()


def _of_text(text: str) -> Any:
    """The facts of JSON or of another text, and how many words that has."""
    with suppress(ValueError):
        return facts(json.loads(text))
    return [facts(text), len(text.split())]
