# SPDX-License-Identifier: Apache-2.0
"""Small inputs of every kind, whose answers are frozen: see `tests.gold`.

`CASES` has a pair of an input and a device for each kind of answer: devices that are too small,
tight and ample, and cards. Tests that use the fixture `in_inputs` run where the files are.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

from allocbench.questions.failure import before
from allocbench.workloads import Trace, catalog, write
from allocbench.workloads.importers.rmm_log import HEADER
from tests.traces import MIB, decoding, training
from tests.workloads.importers import snapshots
from tests.workloads.importers.test_kineto import memory, ran

Item = TypeVar("Item")
_RECORDINGS = Path(__file__).parent / "data/recordings"
_TORCH = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {x}. GPU 0 has a total capacity "
    "of 21.96 GiB of which {free} is free. Including non-PyTorch memory, this process has 20.90 "
    "GiB memory in use. Of the allocated memory {used} is allocated by PyTorch, and {idle} is "
    "reserved by PyTorch but unallocated."
)
_BUNDLED = {  # how many events are kept
    "bert-serve": 1500,
    "diffusion-train": 2000,
    "dlrm-train": 1500,
    "gpt2-train": 6000,
    "llama3-8b-lora": 2500,
    "llm-decode": 1500,
    "moe-train": 2500,
    "resnet50-train": 1500,
}
_COPIED = ("retry", "expandable", "graphs", "pools", "max_split", "streams", "fraction", "warm")

CASES = [  # an input and a device
    ("gpt2-train.parquet", "sim:2GiB"),
    ("gpt2-train.parquet", "sim:4GiB"),
    ("gpt2-train.parquet", "sim:8GiB"),
    ("gpt2-train.parquet", "l4"),
    ("bert-serve.parquet", "sim:1200MiB"),
    ("diffusion-train.parquet", "rtx-4090"),
    ("dlrm-train.parquet", "sim:18GiB"),
    ("llama3-8b-lora.parquet", "sim:30GiB"),
    ("llm-decode.parquet", "sim:16GiB"),
    ("moe-train.parquet", "a100-40gb"),
    ("resnet50-train.parquet", "sim:2GiB"),
    ("training.parquet", "sim:900MiB"),
    ("training.parquet", "sim:1GiB"),
    ("leak.parquet", "sim:1GiB"),
    ("decoding.parquet", "sim:400MiB"),
    ("decoding.parquet", "sim:500MiB"),
    ("random:allocs=300,max_size=8MiB,seed=3", "sim:200MiB"),
    ("bomb-best-fit:rounds=20", "sim:1GiB"),
    ("ping-pong:rounds=500", "sim:700MiB"),
    ("training.csv", "sim:900MiB"),
    ("failed.pickle", "sim:64MiB"),
    ("cut.pickle", "sim:1GiB"),
    ("devices.pickle:device=1", "sim:1GiB"),
    ("profile.json", "sim:64MiB"),
    ("rmm.csv", "sim:64MiB"),
    *((f"{name}.pickle.gz", "sim:128MiB") for name in _COPIED),
]
TEXTS = {
    "full.txt": _TORCH.format(x="3.00 GiB", free="1.06 GiB", used="19.80 GiB", idle="600.00 MiB"),
    "pieces.txt": _TORCH.format(x="2.00 GiB", free="1.06 GiB", used="16.00 GiB", idle="4.40 GiB"),
    "unknown.txt": _TORCH.format(x="1.50 GiB", free="1.06 GiB", used="18.00 GiB", idle="2.40 GiB"),
    "jax.txt": "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while "
    "trying to allocate 4294967296 bytes.",
}


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with all input files."""
    path = tmp_path_factory.mktemp("inputs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        _write_all()
    return path


@pytest.fixture
def in_inputs(written: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the current folder, for a terminal of 80 columns."""
    monkeypatch.chdir(written)
    monkeypatch.setenv("COLUMNS", "80")
    return written


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The items in groups, so that each test of a group is quick."""
    return [items[first : first + size] for first in range(0, len(items), size)]


def _write_all() -> None:
    for name, events in _BUNDLED.items():
        write(_cut(name, events), f"{name}.parquet")
    write(training(1), "training.parquet")
    write(training(2, steps=4), "other.parquet")
    write(training(1, leak=5 * MIB), "leak.parquet")
    write(decoding(4), "decoding.parquet")
    plain = training(3)
    write(plain, "training.csv")
    for name in _COPIED:
        shutil.copy(_RECORDINGS / f"{name}.pickle.gz", ".")
    recorders = [recorded(seed, device) for device, seed in enumerate((5, 6))]
    Path("devices.pickle").write_bytes(snapshots.pickled(snapshots.snapshot(*recorders)))
    Path("cut.pickle").write_bytes(snapshots.pickled(snapshots.snapshot(recorders[0], keep=90)))
    recorders[0].oom(40 * MIB)
    Path("failed.pickle").write_bytes(snapshots.pickled(snapshots.snapshot(recorders[0])))
    Path("profile.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": _profiled()}))
    Path("rmm.csv").write_text(_rmm_log())
    for name, text in TEXTS.items():
        Path(name).write_text(text)


def _cut(name: str, events: int) -> Trace:
    return before(catalog.load(name), events)


def recorded(seed: int, device: int) -> snapshots.Recorder:
    random, recorder, live = Random(seed), snapshots.Recorder(device), list[int]()
    for n in range(120):
        frames = [*snapshots.FRAMES[:1], {**snapshots.FRAMES[1], "line": 10 + n % 4}]
        live.append(recorder.alloc(random.randrange(1, 2 * MIB), n % 3 // 2, frames))
        if len(live) > 8 and n % 5:
            recorder.free(live.pop(random.randrange(len(live))))
    return recorder


def _profiled() -> list[dict[str, Any]]:
    random, events, live = Random(7), list[dict[str, Any]](), list[tuple[int, int]]()
    for step in range(3):
        begin = 1000.0 * step
        events.append(ran(f"ProfilerStep#{step}", begin, 990.0))
        for n in range(20):
            address, size = (1 + step * 20 + n) << 24, 512 * random.randrange(1, 4000)
            events += [
                ran(f"aten::op{n % 4}", begin + 40 * n, 30.0),
                memory(begin + 40 * n + 5, address, size),
            ]
            live.append((address, size))
            if n > 5:
                address, size = live.pop(random.randrange(len(live)))
                events.append(memory(begin + 40 * n + 20, address, -size))
    return events


def _rmm_log() -> str:
    random, live = Random(8), list[tuple[int, int]]()
    lines = [HEADER]
    for n in range(150):
        address, size = 0x7F00 + 4096 * n, random.randrange(1, 1 << 20)
        lines.append(f"1,10:00:00.{n:06},allocate,{address:#x},{size},{n % 2:#x}")
        live.append((address, size))
        if len(live) > 12:
            address, size = live.pop(random.randrange(len(live)))
            lines.append(f"1,10:00:00.{n:06},free,{address:#x},{size},{n % 2:#x}")
    return "\n".join([*lines, ""])
