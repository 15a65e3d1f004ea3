# SPDX-License-Identifier: Apache-2.0
"""Devices, workloads and allocators as they are given: what each stands for, or is refused."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from allocbench.base.cards import cards, find, meant
from allocbench.base.error_text import ErrorText
from allocbench.errors import UsageError
from allocbench.inputs import Unchosen, devices, question, traces
from allocbench.workloads import ALLOC, Provenance, Trace, write
from allocbench.workloads.coverage import Coverage
from tests.allocators.test_replay import program
from tests.gold import Gold, outcome
from tests.traces import make

(L4,) = find("l4")
DEVICES = (
    *(
        "l4",
        "L4",
        "card:l4",
        "l4,seed=3",
        "card:l4,seed=3,alignment=512",
        "h100",
        "a100",
        "h100-sxm",
    ),
    *("80GiB", "80", "8GiB,context=1GiB", "sim:8GiB", "sim:8GiB,context=1GiB", "sim:65536"),
    *("sim:65535", "null:l4", "null:l4,count=2", "l4,count=2", "null:nothing", "cuda", "cuda:0"),
    *("", "l5", "card:l5", "card:", "card:l4,capacity=3", "card:l4,context=3", "card:l4,x", "no:3"),
)


def test_what_names_of_devices_stand_for(gold: Gold) -> None:
    functions = (devices.device_of, devices.recorded_on, devices.null_device_of)
    found: dict[str, Any] = {text: [outcome(one, text) for one in functions] for text in DEVICES}
    found["none"] = devices.recorded_on(None)
    for text in ("sim:65535", "sim:65536", "sim:8GiB,context=1GiB", L4.device):
        found[f"checked {text}"] = [outcome(devices.check_device, text)]
        found[f"of card {text}"] = [outcome(devices.bytes_of_card, text)]
    for texts in (["l4", "sim:1GiB"], ["l4", "card:l4"], ["sim:1KiB"], []):
        found[f"all {texts}"] = [outcome(devices.device_specs, texts)]
    gold("input_devices", found)


def test_a_name_of_several_cards_is_refused_with_their_names() -> None:
    several = next(one.name.split()[0] for one in cards() if not meant(find(one.name.split()[0])))
    with pytest.raises(UsageError, match="more than one card has that name") as caught:
        devices.card_of("given", several)
    named = str(caught.value).rpartition("they are ")[2].split(", ")
    assert named == [card.name for card in find(several)]


def test_lists_of_allocators(gold: Gold) -> None:
    lists = ("bfc,naive", "all", "ALL", "bfc,bfc", "caching:conf=a:1,b:2,arena", "")
    found = {
        f"{text} {device}": outcome(question.allocator_specs, text, device)
        for text in lists
        for device in (None, "sim:1GiB", "sim:much")
    }
    gold("input_allocators", found)


def failed(card: int) -> Trace:
    """A recording whose last request, of 8 KiB, failed on a card of this size."""
    coverage = Coverage(ends="failure", reserved=card - 7, device_free=7, request=8192)
    return make([(ALLOC, 0, 5), (ALLOC, 1, 8192)], coverage=coverage)


@pytest.mark.parametrize(
    ("device", "found", "chosen"),
    [
        (Unchosen("sim:80GiB"), [70_000], "sim:70000"),
        (Unchosen("sim:80GiB"), [65_536], "sim:65536"),
        (Unchosen("sim:80GiB"), [65_535], "sim:80GiB"),
        (Unchosen("sim:80GiB"), [70_000, 70_000], "sim:70000"),
        (Unchosen("sim:80GiB"), [70_000, 80_000], "sim:80GiB"),
        ("sim:80GiB", [70_000], "sim:80GiB"),
    ],
)
def test_the_device_is_that_of_the_failure_unless_one_is_chosen(
    device: str, found: Sequence[int], chosen: str
) -> None:
    assert (
        question.failed_on(device, {str(n): failed(card) for n, card in enumerate(found)}) == chosen
    )


@pytest.mark.parametrize(
    ("sizes", "capacity", "refused"),
    [([5, 9000, 6], 9000, None), ([5, 9000, 9000, 6], 8999, "event 1 "), ([9000], 70_000, None)],
)
def test_a_request_may_be_as_large_as_the_device(
    sizes: Sequence[int], capacity: int, refused: str | None
) -> None:
    trace = make([(ALLOC, n, size) for n, size in enumerate(sizes)])
    asked = question.Question({"t": trace}, [], f"sim:{capacity}", [], None)
    if refused is None:
        question.check_largest_request(asked)
    else:
        with pytest.raises(UsageError, match=f"too small for t: {refused}"):
            question.check_largest_request(asked)


def test_a_request_that_failed_may_be_larger_than_its_own_device_only() -> None:
    trace = failed(7000)
    own = question.Question({"t": trace}, [], "sim:7000", [], None)
    question.check_largest_request(own)
    with pytest.raises(UsageError, match="event 1 "):
        question.check_largest_request(question.Question({"t": trace}, [], "sim:7001", [], None))


def test_notes_are_of_each_recording(tmp_path: Path) -> None:
    extra = {"settings": {"expandable_segments": "true"}}
    for name in ("one", "two"):
        write(
            make([(ALLOC, 0, 5)], provenance=Provenance(name, extra=extra)),
            tmp_path / f"{name}.parquet",
        )
    files = [str(tmp_path / f"{name}.parquet") for name in ("one", "two")]
    asked = question.read(files, ["caching", "bfc"], "sim:1GiB")
    assert [note.partition(":")[0] for note in asked.notes] == ["one", "two"]
    assert (list(asked.traces), asked.free, asked.notes_on_failures(3)) == (
        ["one", "two"],
        None,
        [],
    )


def test_a_recording_without_events_is_for_some_questions(tmp_path: Path) -> None:
    path = str(tmp_path / "held.parquet")
    part = Coverage("later", "open", events=False, held=1 << 20)
    write(make([(ALLOC, 0, 5)], coverage=part), path)
    with pytest.raises(UsageError, match="held: "):
        question.read([path], ["bfc"], "sim:1GiB")
    assert not isinstance(question.read_any(path, "bfc", "sim:1GiB"), ErrorText)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system pins no processes")
def test_a_process_is_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = list[Any]()
    monkeypatch.setattr(os, "sched_setaffinity", lambda *given: pinned.append(given))
    question.read_large("gpt2-train", "bfc", "sim:1GiB", pin=3)
    assert pinned == [(0, {3})]
    for error in (OSError(), ValueError()):
        monkeypatch.setattr(
            os, "sched_setaffinity", lambda *_, error=error: (_ for _ in ()).throw(error)
        )
        with pytest.raises(UsageError, match="--pin 3: "):
            question.read_large("gpt2-train", "bfc", "sim:1GiB", pin=3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("t.csv", ("t.csv", {})),
        ("t.csv:device=1,x=y", ("t.csv", {"device": "1", "x": "y"})),
        ("odd.csv:a=1", ("odd.csv:a=1", {})),  # the name of a file
        ("-", ("-", {})),
        ("-:kv=paged", ("-", {"kv": "paged"})),
        ("t.csv:device=1,x", "'x' is not option=value"),
        ("train.py", "is a program, not a trace"),
        ("t.cs", "neither a file nor a workload; did you mean t.csv?"),
        ("no/t.csv", "there is no folder no"),
        ("gpt2-trian", "did you mean gpt2-train?"),
        ("zzz", "`allocbench list workloads` shows the workloads"),
    ],
)
def test_a_workload_is_a_file_with_options(
    text: str, found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t.csv", "odd.csv:a=1", "train.py"):
        Path(name).write_text("op,id,size\na,0,512\n")
    if isinstance(found, tuple):
        assert traces._file_and_options(text) == found
    else:
        with pytest.raises(UsageError) as caught:
            traces._file_and_options(text)
        assert found in str(caught.value)


def test_a_model_is_for_logs_of_requests(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-05-10 00:00:00.0,100,10\n")
    loads = [
        traces.load(text, model).max_load
        for text, model in (
            (f"{path}", None),
            (f"{path}", "qwen2.5-7b"),
            (f"{path}:model=qwen2.5-7b", "llama-3.1-8b"),
            (f"{path}:model=qwen2.5-7b", None),
        )
    ]
    assert loads[1] == loads[2] == loads[3] != loads[0]
    served, _ = traces.load_plannable(str(path), "qwen2.5-7b")  # type: ignore[misc]
    assert int(served.size.sum()) == traces.load(str(path), "qwen2.5-7b").requested
    write(program(), tmp_path / "t.parquet")
    blocks, is_csv = traces.load_plannable(str(tmp_path / "t.parquet"))  # type: ignore[misc]
    assert (len(blocks), is_csv) == (program().allocs, False)
    Path(tmp_path / "b.csv").write_text("id,lower,upper,size\na,0,2,4\n")
    assert traces.load_plannable(str(tmp_path / "b.csv"))[1] is True  # type: ignore[index]
