# SPDX-License-Identifier: Apache-2.0
"""allocbench.cli: what each command does."""

import contextlib
import csv
import gzip
import io
import itertools
import json
import re
import shutil
from inspect import cleandoc
from pathlib import Path
from typing import Any

import pytest

from allocbench import __version__
from allocbench.commands import COMMANDS, EXAMPLES, Command
from allocbench.reports.rows import bundle, results
from allocbench.reports.rows.results import SCHEMA
from allocbench.workloads import ALLOC, catalog, files, first_events, parquet, read, write
from tests import asv_results
from tests.commands import EVENTS, QUICK, folder, output, run
from tests.tflite_models import tflite_file
from tests.traces import assert_same, make
from tests.workloads.importers.snapshots import Recorder, pickled, snapshot
from tests.workloads.serving.test_architectures import LLAMA
from tests.workloads.serving.test_architectures import write as write_config
from tests.workloads.serving.test_requests import AZURE

__all__ = ["folder"]  # the fixture, by its import
DATA = Path(__file__).parents[1] / "data"


def placements(line: str) -> list[tuple[int, ...]]:
    header, *rows = csv.reader(io.StringIO(output(line)))
    assert header == ["block", "segment", "offset", "size"]
    return [tuple(map(int, row)) for row in rows]


# Programs as workloads are tested in test_program_workloads.py.
_ELSEWHERE = ("record", "run")
NEED_MORE = tuple(f"allocbench {name}" for name in _ELSEWHERE)  # tested there


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_help_has_its_summary_and_examples(command: Command) -> None:
    module = command.load()
    shown = " ".join(output(f"{command.name} --help").split())
    summary = cleandoc(module.run.__doc__).partition("\n\n")[0]
    assert " ".join(summary.split()) == command.summary
    assert module.EXAMPLES
    for example in module.EXAMPLES:
        assert f"$ {example}" in shown
        assert example.split()[:2] == ["allocbench", command.name]


def test_the_help_lists_every_command_in_its_group() -> None:
    shown = output("--help")
    assert re.findall(r"^│ ([a-z]+) {2,}[A-Z]", shown, re.M) == [one.name for one in COMMANDS]
    examples = {example for command in COMMANDS for example in command.load().EXAMPLES}
    assert set(EXAMPLES) <= examples


RUN_HERE = [
    example
    for command in COMMANDS
    for example in command.load().EXAMPLES
    if not example.startswith(NEED_MORE) and " -- " not in example
]


# Options that leave less to do.
LESS = {
    "compare": f"{QUICK} --allocators bfc,naive",
    "fit": "--allocators caching",
    "recommend": "--orders 0 --budget 2",
    "replay": QUICK,
    "sweep": f"{QUICK} --allocators bfc,naive",
    "tune": "--budget 4",
}
# Exit codes that are answers.
CODES = {"check": (0, 1, 2)}


def less(line: str) -> str:
    """A line of the command line with less to do; the allocators that it names stay."""
    more = LESS.get(line.split()[0], "")
    return f"{line} {more.partition('--allocators')[0] if '--allocators' in line else more}"


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results that examples of `report` read."""
    made = tmp_path_factory.mktemp("reported")
    with contextlib.chdir(made):
        for name in ("trace.csv", "monday.csv", "tuesday.csv"):
            write(make(EVENTS), name)
        few = "--allocators bfc,naive --results results.zip --json results.json"
        output(f"compare trace.csv {QUICK} {few}")
        output(f"compare monday.csv {QUICK} --allocators bfc --results monday.zip")
        output(f"compare tuesday.csv {QUICK} --allocators bfc --json tuesday.json")
        output(f"sweep trace.csv {QUICK} --allocators bfc,naive -o sweep.jsonl")
    asv_results.write(made / ".asv" / "results", "a" * 40)
    return made


@pytest.mark.parametrize("example", RUN_HERE)
def test_every_example_works(example: str, reported: Path) -> None:
    write(make(EVENTS), "trace.csv")
    write(make(EVENTS), "trace.parquet")
    recorder = Recorder()
    recorder.alloc(7)
    Path("snapshot.pickle").write_bytes(pickled(snapshot(recorder)))
    Path("requests.csv").write_text(AZURE)
    Path("error.txt").write_text("RuntimeError: CUDA error: out of memory\n")
    write_config(Path(), LLAMA)
    if example.startswith("allocbench verify"):
        recorded = gzip.decompress((DATA / "recordings/cold.pickle.gz").read_bytes())
        Path("recordings").mkdir()
        for path in (Path("snapshot.pickle"), Path("recordings/snapshot.pickle")):
            path.write_bytes(recorded)
    tflite_file(Path("model.tflite"))
    if example.startswith("allocbench report"):
        shutil.copytree(reported, ".", dirs_exist_ok=True)
    line = example.partition("|")[0].removeprefix("allocbench ").replace("--pin 0", "")
    result = run(less(line))
    assert result.exit_code in CODES.get(line.split()[0], (0,)), result.output
    assert "error: " not in result.stderr


def test_help_and_version() -> None:
    assert output("") == output("--help")
    assert "$ allocbench compare gpt2-train" in output("")
    assert output("--version") == f"allocbench {__version__}\n"


def test_compare_writes_rows_with_the_schema_and_a_report() -> None:
    line = "compare good.csv good.parquet --allocators naive,bfc,cuda_async,bump --time 1"
    output(f"{line} --json rows.json --html report.html --results results.zip")
    rows = json.loads(Path("rows.json").read_text())
    assert [list(row) for row in rows] == [list(SCHEMA)] * 2 * 4
    assert json.loads(results.to_json(bundle.read("results.zip").rows)) == rows
    assert {row["workload"] for row in rows} == {"good", "made"}
    ran = [row for row in rows if row["unavailable"] is None]
    assert ran == rows
    assert all(row["min_capacity"] > 0 for row in rows)
    timed = [row["allocator"] for row in rows if row["alloc_p99_seconds"] is not None]
    assert timed == ["naive", "bfc", "bump"] * 2  # a model of the driver's pool has no host time
    page = Path("report.html").read_text()
    assert f"allocbench {line}" in page
    assert bundle.read("rows.json").rows.shape == (len(rows), len(SCHEMA))


def test_only_json_goes_to_standard_output() -> None:
    specs = ["naive", "bfc:allow_growth=false,memory_limit=1GiB", "buddy"]
    line = f"compare good.csv --allocators {','.join(specs)} {QUICK} --json -"
    rows = json.loads(output(line), parse_constant=pytest.fail)
    assert [row["allocator"] for row in rows] == specs
    assert rows[1]["peak_reserved"] == 1 << 30
    page = output(f"compare good.csv --allocators naive {QUICK} --html -")
    assert page.lower().startswith("<!doctype html>")
    (row,) = json.loads(output(f"replay good.csv --allocator naive {QUICK} --json -"))
    assert row["peak_reserved"] == (3 << 20) + 100 + 1


def test_json_without_a_file_is_standard_output() -> None:
    def row(line: str) -> dict[str, Any]:
        [only] = json.loads(output(line))
        return {name: value for name, value in only.items() if name != "date"}

    line = "replay good.csv --allocator bfc --time 0"
    written = row(f"{line} --json -")
    assert row(f"{line} --json") == written
    assert row("replay --json --time 0 --allocator bfc good.csv") == written


def test_traces_of_one_name_are_distinguished_by_their_path() -> None:
    Path("more").mkdir()
    write(make(EVENTS), "more/good.csv")
    line = f"compare good.csv more/good.csv --allocators naive {QUICK} --json -"
    assert [row["workload"] for row in json.loads(output(line))] == ["good.csv", "more/good.csv"]


def test_content_determines_the_format_and_a_workload_takes_precedence_over_a_file() -> None:
    Path("good.parquet").rename("parquet.csv")
    Path("good.csv").rename("gpt2-train")
    assert "synthetic" in output("inspect parquet.csv")
    assert f"{len(catalog.load('gpt2-train')):,}" in output("inspect gpt2-train")
    assert "8: 4 allocs" in output("inspect ./gpt2-train")


def test_placements_are_what_the_rules_of_naive_and_bump_say() -> None:
    asked = [(block, size) for op, block, size in EVENTS if op == ALLOC]
    line = f"replay good.csv {QUICK} --placements - --allocator"
    expected = [(block, segment, 0, size) for segment, (block, size) in enumerate(asked)]
    assert placements(f"{line} naive") == expected
    rounded = [-(-size // 256) * 256 for _, size in asked]
    tops = [0, *itertools.accumulate(rounded)]
    expected = [
        (block, 0, top, size) for (block, _), top, size in zip(asked, tops, rounded, strict=False)
    ]
    assert placements(f"{line} bump") == expected


def test_a_failed_request_is_placed_nowhere_and_the_replay_goes_on() -> None:
    line = f"replay good.csv --allocator naive --device sim:1MiB {QUICK}"
    assert placements(f"{line} --placements -") == [
        (0, 0, 0, 4096),
        (1, 1, 0, 100),
        (2, -1, -1, 0),
        (0, 2, 0, 1),
    ]
    (row,) = json.loads(output(f"{line} --json -"))
    assert row["failures"] == 1


def test_placements_are_written_in_as_many_parts_as_it_takes() -> None:
    blocks = 150_000
    write(make([(ALLOC, block, 7) for block in range(blocks)]), "long.parquet")
    found = placements(f"replay long.parquet --allocator naive {QUICK} --placements -")
    assert found == [(block, block, 0, 7) for block in range(blocks)]
    line = f"replay long.parquet --allocator naive {QUICK} --placements new.csv"
    assert "peak reserved" in output(line)
    assert len(Path("new.csv").read_text().splitlines()) == 1 + blocks


def test_inspect_shows_the_same_of_a_large_file(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = first_events(catalog.load("gpt2-train"), 4000)
    write(trace, "large.parquet")
    whole = output("inspect large.parquet")
    monkeypatch.setattr(files, "MOST_IN_MEMORY", 3999)
    monkeypatch.setattr(parquet, "PART_EVENTS", 300)
    assert output("inspect large.parquet") == whole


def test_convert_goes_both_ways() -> None:
    assert output("convert good.csv -o new.parquet") == ""
    assert output("convert new.parquet -o new.csv") == ""
    assert Path("new.csv").read_text() == Path("good.csv").read_text()
    assert output("convert new.parquet -o -") == Path("good.csv").read_text()
    assert_same(read("new.parquet"), read("good.csv"))
    result = run("convert gpt2-train -o new.csv")
    assert result.exit_code == 0
    assert result.stderr == "note: 50 marks and trims were left out: CSV cannot store them\n"
