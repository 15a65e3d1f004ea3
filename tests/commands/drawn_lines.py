# SPDX-License-Identifier: Apache-2.0
"""Command lines that are drawn from the options of each command, for small inputs and a program.

Values are drawn by the names of options, so that a new option of a known name takes part at once.
The program is not there: `program` says what each of its runs allocates.
"""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest
import typer
from typer.models import ArgumentInfo

from allocbench import allocators
from allocbench.base import children
from allocbench.base.children import Ended
from allocbench.commands import Command
from allocbench.commands.options import OR_COMMAND
from allocbench.null_gpu import launch
from allocbench.null_gpu.device import read
from allocbench.null_gpu.launch import Limits, Session
from allocbench.programs import program, server_start, with_allocator
from allocbench.programs.execution import Execution
from allocbench.programs.server_start import ServerRun
from allocbench.programs.with_allocator import Report
from allocbench.reports.rows.results import IDENTITY
from allocbench.workloads import ALLOC, Provenance, recording
from allocbench.workloads.recording import Machine, Recorded
from tests.answer_inputs import TEXTS
from tests.traces import GIB, training
from tests.workloads.serving.test_start_logs import FIRST, NEWEST, OTHER

_INPUTS = ("training.parquet", "leak.parquet", "failed.pickle", "decoding.parquet", "training.csv")
_RARE = (
    *("other.parquet", "cut.pickle", "devices.pickle:device=1", "rmm.csv", "profile.json"),
    *(
        "resnet50-train.parquet",
        "llm-decode.parquet",
        "graphs.pickle.gz",
        "segments.pickle",
        "pools.pickle.gz",
    ),
    *("retry.pickle.gz", "missing.csv", "training.py", *TEXTS),
)
_SPECS = ("caching", "bfc", "caching:expandable_segments=true", "naive", "tlsf", "bump", "nothing")
_LISTS = (
    *("caching,bfc", "naive,caching:max_split_size_mb=64", "tlsf", "expandable,naive,buddy"),
    *("caching,caching:version=2.9", "bfc,bfc", "bfc,nothing"),
)
_SMALL = ("0", "512", "600MiB", "600MiB", "3GiB", "16GiB", "much")
_VALUES: dict[str, Sequence[str]] = {  # by option, and for a command alone
    "run allocator": ("native", "native:a=1", *["record:of=bfc", "bfc", "native"] * 3, *_SPECS),
    "plan time_limit": ("5",),
    "serving device": (*["h100-pcie-80gb", "h200", "a100-40gb", "l4"] * 3, "sim:1GiB"),
    "diff vary": ("batch=8,16", "batch=16,4", "size=1,2", "batch=2..9"),
    "tune device": ("sim:64MiB", "sim:400MiB", "sim:900MiB", "l4"),
    "fit device": (*["l4", "rtx-4090"] * 2, "sim:900MiB", "sim:64MiB", "sim:1GiB"),
    "run device": (*["h100", "l4,count=2"] * 3, "sim:1GiB"),
    "run json": (*["out/new.json"] * 6, "-"),
    "run record": ("out/new.csv", *["out/new.csv", "out/new.parquet"] * 3, "-"),
    "record device": ("h100", "l4,count=2"),
    "record output": (*["out/new.parquet", "out/new.csv"] * 7, "-", "new.txt"),
    "report output": ("out/page.html",),
    "verify allocator": ("caching:expandable_segments=true", "caching:version=2.9", "bfc"),
    "last": ("1", "5"),
    "alignment": ("1", "512", "4096"),
    "allocator": _SPECS,
    "allocators": _LISTS,
    "block_size": ("1", "16", "64"),
    "budget": ("1", "4", "9"),
    "capacity": ("1GiB", "64MiB", "0"),
    "capture_sizes": ("none", "1,2,4", "8,16,a"),
    "context": _SMALL,
    "device": ("sim:900MiB", "sim:1GiB", "sim:64MiB", *["l4"] * 2, "sim:400MiB", "null:l4"),
    "fraction": ("0.5", "0.9", "1.5"),
    "gpu": ("GPU", "nothing"),
    "json": (*["-"] * 5, *["out/new.json"] * 9, "missing/new.json"),
    "markdown": ("-", "out/new.md"),
    "output": (*["out/new.parquet", "out/new.csv", "-"] * 3, "out/new.pickle"),
    "judged": ("offsets.csv", "offsets.csv", "rows.json"),
    "log": ("requests.jsonl", "requests.csv"),
    "max_model_len": ("2048", "100000", "999999999"),
    "max_num_batched_tokens": ("512", "8192", "1"),
    "max_num_seqs": ("1", "64", "4096"),
    "model": ("llama-3.1-8b", "nothing"),
    "nccl": _SMALL,
    "orders": ("1", "2"),
    "other": _SMALL,
    "perfetto": ("out/new.json",),
    "pin": ("4095",),
    "placements": ("out/new.csv",),
    "planner": (*["greedy_by_size", "best_fit", "no_reuse"] * 3, "nothing"),
    "ranks": ("1", "4"),
    "reference": ("caching", "bfc", "tlsf"),
    "requests": ("1", "50"),
    "rerun": ("",),
    "seed": ("1", "2"),
    "snapshot": ("out/new.pickle",),
    "steps": ("1", "3"),
    "tensor_parallel": ("1", "2", "3"),
    "time": ("0",),
    "time_limit": ("0",),
    "timeout": ("4", "5"),
    "to": ("snapshot", "csv", "nothing"),
    "until": ("l4", "sim:2GiB"),
    "value": ("loss=1", "nothing"),
    "vary": ("batch=2..20", "batch=100..600:20", "batch=400..600:50", "batch=9..1", "size=1..4"),
    "versions": ("2.9,2.13", "2.9", "2.11,2.12,2.13", "x,2.9"),
    "weigh": ("memory=2", "time=0,switch=3", "nothing=1", "memory=x"),
    "world": ("1", "4"),
}
_OFTEN = {  # of how many lines; defaults of the first take long
    **dict.fromkeys(("time", "budget", "time_limit", "orders", "output", "planner"), 1),
    **{"report output": 0.2, "report markdown": 0.9, "plan output": 0.5},
    **{"json": 0.6, "device": 0.6, "allocators": 0.5, "serving device": 0.9, "run record": 0.5},
    **{
        "model": 0.04,
        "pin": 0.04,
        "vary": 0.03,
        "timeout": 0.04,
        "versions": 0.2,
        "gpu": 0.05,
        "diff new": 0.7,
        "diff allocators": 0.3,
        "serving log": 0.3,
        "poison": 0.1,
        "report reference": 0.5,
    },
}
_OF_COMMANDS = {  # inputs that a command is for
    "whatif": ("resnet50-train.parquet", "llama3-8b-lora.parquet", *2 * ["layers.parquet"]),
    "check": (*_INPUTS, *3 * ["layers.parquet"]),
    "plan": ("decoding.parquet", "training.csv", "model.tflite", "buffers.txt", "blocks.csv"),
    "verify": ("retry.pickle.gz", "pools.pickle.gz"),
}
_PROGRAM = "python3 train.py --batch"
_WORDS = {  # by the name of an argument
    "allocator": _SPECS,
    "words": (
        *["llama-3.1-8b", "qwen2.5-7b", "qwen3-0.6b", "config.json"] * 3,
        "mixtral-8x7b",
        "x",
    ),
    "results": (*["rows.json", "rows.json other.json"] * 3, "training.parquet", "missing.json"),
    "recordings": [
        *["retry.pickle.gz", "pools.pickle.gz expandable.pickle.gz", "streams.pickle.gz"] * 3,
        *["max_split.pickle.gz", "warm.pickle.gz graphs.pickle.gz", "training.csv"],
    ],
}
_NEVER = ("figures", "history", "html", "bundled", "start", "run_edited")  # too slow


def lines(command: Command, count: int) -> list[str]:
    """Command lines of a command; its name is the seed."""
    function, random = command.load().run, Random(command.name)
    hints = get_type_hints(function, include_extras=True)
    defaults = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    return [_line(command, hints, defaults, random) for _ in range(count)]


def _line(
    command: Command, hints: Mapping[str, Any], defaults: Mapping[str, Any], random: Random
) -> str:
    words, rest = [command.name], ""
    shown = {
        name: get_args(hint) if get_origin(hint) is Annotated else (hint, typer.Option())
        for name, hint in hints.items()
        if name != "return" and hint is not typer.Context
    }
    metavars = [about.metavar or "" for _, about, *_ in shown.values()]
    varied = False
    if any(one.startswith("--") for one in metavars) or (
        any(OR_COMMAND in one for one in metavars) and random.random() < 0.25
    ):
        varied = "vary" in shown and random.random() < 0.7
        rest = f"-- {_PROGRAM} {'{batch}' if varied else random.choice(('4', '16', '64'))}"
    for name, (kind, about, *_) in shown.items():
        own = f"{command.name} {name}"
        if isinstance(about, ArgumentInfo):
            if name == "words" and random.random() < 0.3:
                rest = "--run -- vllm serve"
            elif not rest and (
                defaults[name] is not None or random.random() < _OFTEN.get(own, 0.95)
            ):
                words += _argument(command, name, kind, random)
        elif name not in _NEVER and (
            (name == "vary" and varied)
            or random.random() < _OFTEN.get(own, _OFTEN.get(name, 4 / len(shown) ** 1.4))
        ):
            values = _VALUES.get(own) or _VALUES.get(name, ())
            words.append(_option(name, kind, about, defaults[name], values, random))
    return " ".join([*words, *([rest] if rest else [])])


def _argument(command: Command, name: str, kind: Any, random: Random) -> list[str]:
    if name in _WORDS:
        return [random.choice(_WORDS[name])]
    known = _OF_COMMANDS.get(command.name, _INPUTS)
    count = 2 if "list" in str(kind) and random.random() < 0.3 else 1
    return [random.choice(known if random.random() < 0.85 else _RARE) for _ in range(count)]


def _option(
    name: str, kind: Any, about: Any, default: Any, values: Sequence[str], random: Random
) -> str:
    names = (about.default, *(about.param_decls or ()))  # typer takes the first as the default
    flags = [one for one in names if isinstance(one, str) and one.startswith("--")]
    flag = flags[0] if flags else f"--{name.replace('_', '-')}"
    if kind is bool:
        return flag.replace("--", "--no-", 1) if default is True else flag
    plain = next((one for one in get_args(kind) if get_origin(one) is Literal), kind)
    if get_origin(plain) is Literal:
        return f"{flag} {random.choice(get_args(plain))}"
    return f"{flag} {random.choice(values)}"


@contextmanager
def programs_that_are_not_there() -> Iterator[None]:
    """Each run of a program does what its batch says, and no other process is started."""
    reports = {"4": (), "16": ((7, 0),), "64": ((7, 0), (7, 1), (8, 0))}
    asked = [""]

    @contextmanager
    def session(device: str | None, _: Limits) -> Iterator[Session]:
        machine = Machine(read(device).name, {"A": "1"}) if device else None
        yield Session(machine, notes=["of 1 session"])

    def run(command: Sequence[str], _: Mapping[str, str]) -> Ended:
        asked[0] = command[-1]
        return Ended(int(command[-1]) % 3)

    def record(command: Sequence[str], *_: Any, **options: Any) -> Recorded:
        asked[0] = command[-1]
        names = [f"rank{one}-gpu{gpu}" for one, gpu in reports[asked[0]]]
        names = [""] if len(names) == 1 else names
        return Recorded(0, {name: training(n, 2) for n, name in enumerate(names)}, ["1 failed"])

    row = json.loads(Path("rows.json").read_text())[0]

    def reported(_: str) -> Iterator[Report]:
        for pid, ordinal in reports[asked[0]]:
            trace = training(ordinal, 2)
            columns = {name: getattr(trace, name) for name in ("op", "block", "size", "stream")}
            told = {name: row[name] for name in row if name not in IDENTITY} | {"failures": pid}
            told |= {"device_kind": "cuda"}
            extra = {"requests": 9, "frees": pid, "gpu_peak_used": 5, "peak_reserved_for_graphs": 3}
            extra |= {"deferred_frees": 2} if ordinal else {}
            yield Report(pid, ordinal, f"GPU {ordinal}", "2.9.1+cu128", told, extra, columns)

    def started(_: Sequence[str], device: str, __: float) -> ServerRun:
        text = (NEWEST, FIRST, OTHER)[len(device) % 3]
        return ServerRun(tuple(text.splitlines()), 31.0, 20 * GIB)

    with pytest.MonkeyPatch.context() as patch:
        for owner, name, replaced in (
            (program, "run", _run),
            (recording, "has_cuda", lambda: False),
            (allocators, "cuda_devices", lambda: print("is there a GPU?")),
            (launch, "session", session),
            (children, "run", run),
            (recording, "record", record),
            (with_allocator, "reports", reported),
            (with_allocator, "native_only", lambda _: ["graphs 1"]),
            (with_allocator, "complaints", lambda _: ["2 ended"]),
            (server_start, "run", started),
        ):
            patch.setattr(owner, name, replaced)
        yield


def _run(
    command: Sequence[str], name: str, device: str | None, limits: Limits, *_: Any, **__: Any
) -> Execution:
    """What a run of the program allocates: a multiple of what `training` allocates."""
    batch, plain = int(command[-1]), training(1, steps=limits.steps or 4)
    capacity = read(device).memory if device else 0
    size = np.where(plain.op == ALLOC, plain.size * batch // 8, plain.size)
    failed = bool(device) and plain.max_load * batch // 8 > capacity
    extra: dict[str, Any] = {"other_events": {"oom": 1}, "after_oom": {"steps": 0, "allocs": 0}}
    trace = replace(
        plain,
        size=size,
        provenance=Provenance(name=name, extra=extra if failed else {}, device="L4"),
    )
    return Execution(Recorded(int(failed), {"": trace}, []), device, ("a note",))
