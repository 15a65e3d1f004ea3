# SPDX-License-Identifier: Apache-2.0
"""The original planners: programs that read lifetimes as a CSV and write offsets as one."""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from allocbench import allocators
from allocbench.workloads.block_lifetimes import Lifetimes
from benchmarks.workshop.originals.environments import HERE, NotHereError, packages, run, sources
from benchmarks.workshop.originals.environments import program as compiled

SECONDS = 10.0
"""After which a planner is stopped."""


@dataclass(frozen=True)
class Planner:
    """An original planner.

    source: the package with its version, or the repository with its commit. line: the command that
    reads the file {in} and writes {out}; {load} is the largest load in bytes; raises NotHereError.
    replica: the planner of ours that does the same, with `alignment` bytes. failure: what it means
    when it ends with an error, if its last line does not say it.
    """

    name: str
    source: str
    line: Callable[[], list[str]]
    replica: str = ""
    alignment: int = 1
    failure: str = ""


def offsets(
    line: list[str],
    blocks: Lifetimes,
    *,
    capacity: int | None = None,
    seconds: float = SECONDS,
) -> NDArray[np.uint64]:
    """The offsets that a command gives to blocks; raises NotHereError, with what it said.

    capacity: bytes that are known to be enough, for planners that are told; default: the load.
    """
    columns = {"lower": blocks.first, "upper": blocks.last, "size": blocks.size}
    load = capacity or int(allocators.plan(*_arrays(blocks), planner="no_reuse").max_load)
    with tempfile.TemporaryDirectory() as folder:
        names = {"{in}": f"{folder}/in.csv", "{out}": f"{folder}/out.csv", "{load}": str(load)}
        pd.DataFrame(columns).rename_axis("id").to_csv(names["{in}"])
        for name, value in names.items():
            line = [word.replace(name, value) for word in line]
        run(line, timeout=seconds)
        found = pd.read_csv(names["{out}"]).set_index("id")["offset"].sort_index()
    return found.to_numpy(np.uint64)


def height(name: str, blocks: Lifetimes, places: NDArray[np.uint64]) -> int:
    """The height of a plan in bytes; raises SpecError if two blocks overlap."""
    return allocators.judge(*_arrays(blocks), places, planner=name).height


def replica(planner: Planner, blocks: Lifetimes) -> NDArray[np.uint64]:
    """The offsets of ours."""
    return allocators.plan(
        *_arrays(blocks), planner=planner.replica, alignment=planner.alignment
    ).offsets


def _arrays(blocks: Lifetimes) -> tuple[NDArray[np.uint64], NDArray[np.uint32], NDArray[np.uint32]]:
    return blocks.size, blocks.first, blocks.last


MINIMALLOC = ("https://github.com/google/minimalloc", "9f5cf810fec4494df473c23cffd0567989e81b69")
GGML = ("https://github.com/ggml-org/ggml", "d99724f2b141fed9e1a9f402213506c081433465")
LITERT = ("https://github.com/google-ai-edge/LiteRT", "f67457790c9c2ab67347d6fe53270e8d3df20868")
FLATBUFFERS = ("https://github.com/google/flatbuffers", "v25.9.23")
ABSEIL = "tensorflow-cpu==2.21.0"  # whose headers LiteRT includes
EXECUTORCH = ("executorch==1.5.1",)


def _minimalloc() -> list[str]:
    """CMake builds it; its submodules must be there."""
    there = sources("minimalloc", *MINIMALLOC)
    made = there / "build" / "minimalloc"
    if not made.exists():
        run(["cmake", "-S", str(there), "-B", str(made.parent), "-DCMAKE_BUILD_TYPE=Release"])
        run(["cmake", "--build", str(made.parent), "--target", "minimalloc"])
    return [str(made), "--input={in}", "--output={out}", "--capacity={load}"]


def _ggml() -> list[str]:
    there = sources("ggml", *GGML)
    folders = [f"-I{there / part}" for part in ("include", "src")]
    flags = [*folders, "-ffunction-sections", "-Wl,--gc-sections"]
    return [str(compiled("ggml.c", "ggml", *flags)), "{in}", "{out}"]


def _tflite() -> list[str]:
    there, flatbuffers = sources("LiteRT", *LITERT), sources("flatbuffers", *FLATBUFFERS)
    headers = packages(ABSEIL) / "tensorflow" / "include"
    folders = [f"-I{folder}" for folder in (there, headers, flatbuffers / "include")]
    parts = ("arena_planner.cc", "simple_memory_arena.cc", "core/c/common.cc")
    files = [str(there / "tflite" / part) for part in parts]
    return [str(compiled("tflite.cpp", "tflite", "-std=c++17", *folders, *files)), "{in}", "{out}"]


def _executorch() -> list[str]:
    there = packages(*EXECUTORCH)
    return [
        sys.executable,
        str(HERE / "programs" / "executorch_greedy.py"),
        str(there),
        "{in}",
        "{out}",
    ]


def _of(repository: tuple[str, str]) -> str:
    return " ".join(repository)


def _missing(reason: str) -> Callable[[], list[str]]:
    def line() -> list[str]:
        raise NotHereError(reason)

    return line


PLANNERS = (
    Planner("TensorFlow Lite ArenaPlanner", _of(LITERT), _tflite, "greedy_by_size", 64),
    Planner(
        "MiniMalloc",
        _of(MINIMALLOC),
        _minimalloc,
        failure=f"no plan as low as the largest load within {SECONDS:g} s",
    ),
    Planner("ggml graph allocator", _of(GGML), _ggml, failure="more than 256 free blocks"),
    Planner("ExecuTorch greedy", EXECUTORCH[0], _executorch),
    Planner(
        "idealloc",
        "https://github.com/cappadokes/idealloc",
        _missing("the Rust packages that it is built with were not available"),
    ),
    Planner(
        "STAlloc planner",
        "https://github.com/infinigence/STAlloc",
        _missing("it reads traces of a hook in Megatron-LM, and there is no adapter yet"),
    ),
    Planner(
        "XLA heap simulator",
        "jaxlib",
        _missing("the package does not export it, and its sources need a build of XLA with Bazel"),
    ),
)
