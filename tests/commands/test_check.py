# SPDX-License-Identifier: Apache-2.0
"""`allocbench check` as a user runs it: verdicts, exit codes, tables, JSON."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allocbench.base.cards import find
from allocbench.reports.advice.check import EXIT_CODES, Answer, Verdict
from allocbench.workloads import ALLOC, write
from allocbench.workloads.coverage import Coverage
from tests.commands import error, folder, run
from tests.traces import make

__all__ = ["folder"]  # the fixture, by its import

GIB = 1 << 30
FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total "
    "capacity of 22.00 GiB of which 1.00 GiB is free. Process 7 has 21.00 GiB memory in use. Of "
    "the allocated memory 20.00 GiB is allocated by PyTorch, and 512.00 MiB is reserved by PyTorch "
    "but unallocated."
)


def answers(line: str, code: int) -> list[dict[str, Any]]:
    result = run(f"check {line} --json -")
    assert result.exit_code == code, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


@pytest.fixture(autouse=True)
def large() -> None:
    """A trace that needs 30 GiB."""
    write(make([(ALLOC, 0, 30 * GIB)]), "large.csv")


def test_one_input() -> None:
    (answer,) = answers("large.csv --device l4", 1)
    (l4,) = find("l4")
    assert (answer["verdict"], answer["need"]) == ("too_big", 30 * GIB)
    assert (answer["device"], answer["capacity"]) == ("L4 24GB", l4.free)
    assert [remedy["kind"] for remedy in answer["remedies"]] == ["card"]
    assert {"remedies", "holders", "unknown", "workload", "card"} <= answer.keys()
    shown = run("check large.csv --device l4")
    assert shown.exit_code == 1
    assert shown.stdout.startswith("DOES NOT FIT L4 24GB: too big.")
    assert run("check large.csv --device h100-sxm").exit_code == 0


def test_a_line_that_was_cut_off_is_named() -> None:
    row = "11,15:47:02:841961,{},256,0x0\n"
    log = "Thread,Time,Action,Pointer,Size,Stream\n" + row.format("allocate,0x7f0000000000")
    Path("cut.csv").write_text(log + row.format("allocate,0x7f0000000400")[:22])
    (answer,) = answers("cut.csv --device l4", 2)
    assert any("the last line" in line.lower() for line in answer["unknown"])


def test_inputs_by_cards() -> None:
    found = answers("large.csv good.csv --device l4,h100-sxm --device sim:40GiB", 1)
    verdicts = [(one["workload"], one["device"], one["verdict"]) for one in found]
    assert verdicts == [
        ("large", "L4 24GB", "too_big"),
        ("large", "H100 SXM 80GB", "fits"),
        ("large", "sim:40GiB", "fits"),
        ("good", "L4 24GB", "fits"),
        ("good", "H100 SXM 80GB", "fits"),
        ("good", "sim:40GiB", "fits"),
    ]
    shown = run("check large.csv good.csv --device l4,h100-sxm")
    large, good = shown.stdout.splitlines()[-2:]
    assert large.split()[:4] == ["large", "too", "big", "fits"]
    assert good.split()[:3] == ["good", "fits", "fits"]
    assert "RTX 3070 8GB" in good


STATISTICS = {
    f"{name}_bytes.all.{when}": size << 20
    for name, now, most in (("allocated", 5000, 10_000), ("reserved", 12_000, 16_000))
    for when, size in (("current", now), ("peak", most))
}
REPORTS = {
    "statistics": json.dumps(STATISTICS),
    "printed statistics": f"OrderedDict({[*STATISTICS.items()]})",
    "summary": (
        "| PyTorch CUDA memory summary, device ID 0 |\n"
        "| Allocated memory | 5000 MB | 10000 MB | 1 TB | 1 TB |\n"
        "| GPU reserved memory | 12000 MB | 16000 MB | 1 TB | 0 B |"
    ),
    "DeepSpeed": "MA 4.88 GB         Max_MA 9.77 GB         CA 11.72 GB         Max_CA 16 GB",
    "Megatron": "\n".join(
        f"[Rank {rank}] memory (MB) | allocated: 5000.0 | max allocated: {most} | reserved:"
        f" 12000.0 | max reserved: {most_reserved}"
        for rank, most, most_reserved in ((0, "10000.0", "16000.0"), (8, "9000.5", "12000.0"))
    ),
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize(
    ("device", "verdict"),
    [("", "fits"), ("l4", "fits"), ("rtx-3070", "too_big"), ("sim:12GiB", "unknown")],
)
def test_a_report_of_peaks(name: str, device: str, verdict: Verdict) -> None:
    """What was reserved is enough, and what was allocated is needed."""
    Path("report.txt").write_text(REPORTS[name])
    on = f"--device {device}" if device else ""
    (answer,) = answers(f"report.txt {on}", EXIT_CODES[verdict])
    assert (answer["verdict"], answer["bound"]) == (verdict, True)
    assert answer["need"] == pytest.approx(16_000 << 20, rel=0.06)
    assert answer["card"] == "L4 24GB"


def test_a_report_of_failures_is_no_need() -> None:
    Path("report.txt").write_text(f"{REPORTS['summary']}\n| CUDA OOMs: 1 |")
    (answer,) = answers("report.txt --device l4", 2)
    assert answer["need"] is None


def test_all_of_an_answer() -> None:
    (short,) = answers("large.csv --device l4", 1)
    (every,) = answers("large.csv --device l4 --all", 1)
    assert short["rest"] is None
    assert {one["kind"] for one in every["rest"]["trials"]} == {"setting", "card", "allocator"}
    assert every["rest"]["assumed"]
    assert {**every, "rest": None} == short
    line = "check large.csv good.csv --device l4"
    shown, terse = run(f"{line} --all"), run(line)
    assert shown.stdout.startswith(terse.stdout)
    commands = re.findall(r"^ +allocbench (\S+)", shown.stdout, re.MULTILINE)
    assert commands.count("explain") == 1  # of the one that does not fit
    for line in re.findall(r"^ +allocbench (.+large.csv)$", shown.stdout, re.MULTILINE):
        assert run(line).exit_code == 0, line


def test_all_of_a_text_names_the_command_that_tells_more() -> None:
    Path("error.txt").write_text(FULL)
    assert "allocbench explain error.txt" in run("check error.txt --all").stdout


@pytest.mark.parametrize("text", ["l4", "L4", "card:l4", "l4-24gb"])
def test_the_name_of_a_card_is_a_device_everywhere(text: str) -> None:
    result = run(f"fit good.csv --device {text} --allocators caching --time-limit 0")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(run(f"explain large.csv --device {text} --json -").stdout)
    assert row["capacity"] == find("l4")[0].free
    swept = run(f"sweep good.csv --device {text} --allocators caching --time 0 -o s.jsonl --json -")
    assert swept.exit_code == 0, swept.output
    assert json.loads(swept.stdout)[0]["capacity"] == find("l4")[0].free


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("large.csv --device l4", 1),
        ("large.csv --device h100", 0),
        ("large.csv", 0),  # on sim:80GiB
        ("good.csv --device l4", 0),
        ("part.csv --device l4", 2),
    ],
)
def test_the_exit_code_of_other_questions_is_that_of_check(line: str, code: int) -> None:
    write(make([(ALLOC, 0, GIB)], coverage=Coverage(begins="later", ends="open")), "part.parquet")
    line = line.replace("part.csv", "part.parquet")
    assert run(f"check {line}").exit_code == code
    assert run(f"explain {line} --exit-code").exit_code == code
    fit = f"fit {line} --allocators caching --time-limit 0"
    assert run(f"{fit} --exit-code").exit_code == code
    assert run(fit).exit_code == run(f"explain {line}").exit_code == 0


def test_the_fixture_asks_what_the_command_asks(check_memory: Callable[..., Answer]) -> None:
    for card, verdict in (("l4", "too_big"), ("h100", "fits")):
        answer = check_memory("large.csv", card)
        (shown,) = answers(f"large.csv --device {card}", answer.exit_code)
        assert (answer.verdict, answer.need) == (verdict, 30 * GIB)
        assert (shown["verdict"], shown["need"]) == (answer.verdict, answer.need)


def test_a_report_of_an_error_text_is_refused_before_anything_is_written() -> None:
    Path("error.txt").write_text("RuntimeError: CUDA error: out of memory\n")
    assert error("check error.txt --html report.html") == (
        "error: --html: there are no events to draw; give a program or a recording\n"
    )
