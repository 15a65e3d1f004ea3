# SPDX-License-Identifier: Apache-2.0
"""Task: run a program on PyTorch's own allocator and keep what it allocated, event by event.

Next to the JSON file lies the memory snapshot of each of its processes, without call stacks. The
same command on a real and on a null GPU gives two folders that `docs.generate.real_gpu` compares.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from allocbench.workloads import TraceError, catalog
from allocbench.workloads.recording import record
from benchmarks.workshop.gpu import contestants, task
from benchmarks.workshop.gpu.provenance import ROOT
from benchmarks.workshop.gpu.sharing import MEMORY
from benchmarks.workshop.gpu.slim_snapshot import write_slim

PROGRAMS = ROOT / "tests" / "null_gpu" / "programs"
FOLDER = "FOLDER"
"""Stands for a temporary folder in the arguments of a program."""
_TAIL = 2000  # characters of the output

_PEAKS = {
    "bert-serve": 3,
    "diffusion-sample": 10,
    "diffusion-train": 29,
    "dlrm-train": 22,
    "gpt2-train": 15,
    "llama3-8b-lora": 44,
    "llm-continuous": 19,
    "llm-decode": 22,
    "llm-paged": 5,
    "moe-train": 36,
    "resnet50-train": 18,
    "vit-serve": 3,
    "whisper-beam": 8,
}
"""GiB that a workload uses on a null GPU, with the CUDA context, rounded up generously."""

KINDS = (
    *("cold", "warm", "to_nothing", "empty_cache", "overflow", "streams", "two_snapshots"),
    *("graphs", "graph_before", "graphs_in_one_pool", "graph_released", "memory_pool"),
)
"""Those of `recordings.py` that need one GPU."""

SETTINGS = {
    "expandable": "expandable_segments:True",
    "max-split": "max_split_size_mb:24",
    "roundup": "roundup_power2_divisions:[1:4,2:8,16:2,>:4]",
}


@dataclass(frozen=True)
class Observation:
    """A program: its name, GiB of GPU memory, and the words after `gpu.observed FACTS`.

    conf: settings of PyTorch's allocator. recorded: False for one that records its own history.
    """

    name: str
    gib: int
    words: tuple[str, ...]
    conf: str = ""
    recorded: bool = True

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """The environment variables that it needs."""
        conf = ((contestants.CONF, self.conf),) if self.conf else ()
        return (("HF_HUB_OFFLINE", "1"), *conf)


def every() -> Iterator[Observation]:
    """All programs, those that need the most memory and time first."""
    names = sorted(_PEAKS, key=lambda name: -_PEAKS[name])
    for name in names:
        yield _workload(name)
    yield _program("workspace_sizes", gib=8, recorded=False)
    for choice, conf in SETTINGS.items():
        # Blocks of more than 24 MiB are not split, so that this program reserves six times as much.
        yield _workload("gpt2-train", choice, conf, gib=48 if choice == "max-split" else None)
    yield _workload("gpt2-train", "collected", _fraction(0.2) + ",garbage_collection_threshold:0.6")
    yield _workload("gpt2-train", "retries", _fraction(0.118))
    yield _workload("gpt2-train", "too-little", _fraction(0.09))
    yield _workload("llm-decode", "expandable", SETTINGS["expandable"])
    for choice in ("heuristics", "deterministic", "benchmark"):
        yield _program("convolutions", choice)
    for how in ("plain", "compiled", "checkpointed"):
        yield _program("modules", how)
    for kind in ("graphs", "memory_pool", "graphed_callables", "reduce_overhead"):
        yield _program("private_pools", kind)
    for name in ("libraries", "workspaces", "optimizers", "streams", "compiled", "hugging_face"):
        yield _program(name)
    for name in ("values", "profiled", "ends_in_backward"):
        yield _program(name)
    yield _program("memory_api", f"{FOLDER}/dumped.pickle")
    yield _program("resets", "0")
    yield _program("repeated", "3")
    yield _program("workspace_sizes", "grid", gib=16, recorded=False)
    for choice, conf in ({"": ""} | SETTINGS | {"async": "backend:cudaMallocAsync"}).items():
        yield _program("training", conf=conf, choice=choice, recorded=choice != "async")
    for choice, conf in ({"": ""} | SETTINGS).items():
        yield _program("recordings", FOLDER, *KINDS, conf=conf, choice=choice, recorded=False)
    # These fill the card or read how much of it is free.
    yield _program("memory", gib=MEMORY)
    yield _program("processes", gib=MEMORY)


def _fraction(share: float) -> str:
    return f"per_process_memory_fraction:{share}"


def _workload(name: str, choice: str = "", conf: str = "", gib: int | None = None) -> Observation:
    words = (catalog.bundled(name).module, "--device", "cuda")
    full = "--".join(filter(None, [name, choice]))
    return Observation(full, gib or _PEAKS[name], words, conf)


def _program(
    name: str,
    *words: str,
    gib: int = 4,
    conf: str = "",
    choice: str | None = None,
    recorded: bool = True,
) -> Observation:
    if choice is None:
        choice = "-".join(word for word in words if not word.startswith(FOLDER))
    full = "--".join(filter(None, ["program", name, choice]))
    return Observation(full, gib, (str(PROGRAMS / f"{name}.py"), *words), conf, recorded)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the program; its exit code, output, PyTorch's statistics, and the names of snapshots."""
    (chosen,) = (one for one in every() if one.name == arguments.name)
    output: Path = arguments.output
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        facts, kept = folder / "facts.json", folder / "kept"
        kept.mkdir()
        words = [word.replace(FOLDER, temporary) for word in chosen.words]
        command = [sys.executable, "-m", "benchmarks.workshop.gpu.observed", str(facts), *words]
        with (folder / "stdout").open("w+b") as out, (folder / "stderr").open("w+b") as errors:
            run = _recorded if chosen.recorded else _run
            found = run(command, kept, out.fileno(), errors.fileno())
        snapshots = sorted(kept.glob("*.pickle")) or [
            folder / f"{kind}.pickle" for kind in chosen.words if kind in KINDS
        ]
        sizes = {}
        for number, path in enumerate(one for one in snapshots if one.exists()):
            name = f"{output.stem}.{path.stem if not chosen.recorded else number}.pickle.gz"
            sizes[name] = write_slim(path, output.with_name(name))
        stdout = (folder / "stdout").read_text(encoding="utf-8", errors="replace")
        stderr = (folder / "stderr").read_text(encoding="utf-8", errors="replace")
        return found | {
            "conf": chosen.conf,
            "facts": json.loads(facts.read_text()) if facts.exists() else None,
            "printed": _last_json(stdout),
            "stdout": stdout[-_TAIL:],
            "stderr": stderr[-_TAIL:],
            "snapshots": sizes,
        }


def _recorded(command: Sequence[str], kept: Path, stdout: int, stderr: int) -> dict[str, Any]:
    try:
        recorded = record(command, labels="operators", keep=kept, stdout=stdout, stderr=stderr)
    except TraceError as error:  # the snapshot is kept all the same
        return {"code": None, "complaints": [str(error)]}
    return {"code": recorded.code, "complaints": list(recorded.complaints)}


def _run(command: Sequence[str], _kept: Path, stdout: int, stderr: int) -> dict[str, Any]:
    done = subprocess.run(command, stdout=stdout, stderr=stderr)
    return {"code": done.returncode, "complaints": []}


def _last_json(text: str) -> Any:
    """What a program printed as JSON in its last line, or None."""
    try:
        return json.loads(text.strip().splitlines()[-1])
    except (IndexError, ValueError):
        return None


def main() -> None:
    """The command line."""
    parser = task.new_parser(__doc__)
    parser.add_argument("--name", required=True)
    task.finish(parser.parse_args(), measure)


if __name__ == "__main__":
    main()
