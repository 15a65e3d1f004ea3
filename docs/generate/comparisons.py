# SPDX-License-Identifier: Apache-2.0
"""Tables and sentences about a real GPU against a null GPU, a simulated device and recordings."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from allocbench.base import units
from benchmarks.workshop.gpu.tables.summary import unlike
from benchmarks.workshop.wheels.__main__ import STAGES
from docs.generate import agreement, gpu_runs
from docs.generate.truth import result, table

GPU = agreement.FILE.parent.parent


def recordings() -> str:
    """Recordings of real GPUs that others published, with the verdict of `verify`."""
    headings = (
        *("recording", "source, license", "PyTorch, GPU", "verdict", "allocs", "reserved equal"),
        *("address equal", "segment calls equal", "peak reserved"),
    )
    return table(headings, map(_recording, result("recordings.json")["rows"]), right=4)


def _recording(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (row["recording"], row["source"], row["made with"], row["verdict"])
    for key in ("allocs", "reserved_equal", "placed_equal"):
        yield f"{row[key]:,}"
    calls = row["segment_calls"]
    yield "not recorded" if calls is None else f"{row['segment_calls_equal']:,} of {calls:,}"
    yield units.size(row["peak_reserved_recorded"])


def agreement_programs() -> str:
    """What programs allocate on a real and on a null GPU."""
    headings = (
        *("workload", "events", "other allocs", "max load", "peak reserved", "difference"),
        *("other allocs, with formulas", "difference, with formulas"),
    )
    return table(headings, agreement.program_rows())


def agreement_operators() -> str:
    """How many operators allocate the same on a real and on a null GPU."""
    headings = ("operators", "cases", "equal", "equal with formulas")
    return table(headings, agreement.operator_rows())


def agreement_context() -> str:
    """The bytes outside of PyTorch's allocator, on a real and on a null GPU."""
    return table(("after", "H100", "null GPU"), agreement.memory_rows())


def agreement_caching() -> str:
    """`caching` against PyTorch's allocator on a real GPU."""
    headings = (
        *("recording", "verdict", "allocs", "reserved equal", "address equal"),
        *("segment calls equal", "peak reserved"),
    )
    return table(headings, agreement.caching_rows())


def measured_programs(workload: str) -> str:
    """A bundled program on every allocator that ran it on a GPU."""
    return table(gpu_runs.HEADINGS, gpu_runs.rows(workload))


def agreement_others() -> str:
    """The recordings of small programs on the H100, in words."""
    rows = [row for row in agreement.comparison()["caching"] if "program--" in row["process"]]
    equal = sum(row["verdict"] == "equal" for row in rows)
    return (
        f"`make gpu ONLY=agreement` made {len(rows)} more recordings there, of small programs:"
        f" {equal} are equal. The other {len(rows) - equal} have private pools whose memory was"
        " returned before the end, which PyTorch 2.11 does not record, or graphs with"
        " `max_split_size_mb`. Recordings of the same programs on a null GPU differ in the same"
        " way. `verify` reports each difference."
    )


def agreement_layout() -> str:
    """The workloads with convolutions under the null GPU's defaults."""
    rows = result("noted.json")["agreement_with_layout"]["rows"]
    headings = (
        *("workload", "allocs, H100", "allocs, null GPU", "only on the H100"),
        *("only on the null GPU", "max load, null GPU", "peak reserved by `caching:version=2.11`"),
    )
    return table(
        headings,
        (
            (
                f"`{row['workload']}`",
                *(f"{number:,}" for number in (*row["allocs"], *row["only"])),
                *(row["max load"], row["peak reserved"]),
            )
            for row in rows
        ),
    )


def agreement_counts() -> str:
    """How many processes and runs are equal, in words."""
    found = agreement.comparison()
    rows, again = found["programs"], found["programs with formulas"]
    equal = sum(row["first"] is None for row in rows)
    learned = {row["process"] for row in again if row["first"] is None}
    with_formulas = sum(row["first"] is None or row["process"] in learned for row in rows)
    loads = [row["max load"] for row in rows if row["program"] in agreement.WORKLOADS]
    differ = [here / there - 1 for there, here in loads if there != here]
    return (
        f"Without formulas for cuDNN, {equal} of {len(rows)} processes made the same allocs and"
        f" frees in the same order; with them (in-sample), {with_formulas} did. The max load is"
        f" equal in {len(loads) - len(differ)} of the {len(loads)} runs of workloads without the"
        f" formulas, and differs by {min(differ):+.1%} to {max(differ):+.1%} in the others, because"
        " the workspace of a convolution is in the peak. The processes that differ:"
    )


def snapshots_of_a_transformer() -> str:
    """Public snapshots of a transformer, and the same script on a null GPU."""
    headings = (
        *("context, pattern", "events, real", "events, null GPU", "differences"),
        *("peak reserved, real", "peak reserved, null GPU"),
    )
    return table(
        headings,
        (
            (
                row["program"],
                *(f"{number:,}" for number in (*row["events"], row["differences"])),
                *(f"{number:,}" for number in row["peak reserved"]),
            )
            for row in result("noted.json")["snapshots_of_a_transformer"]["rows"]
        ),
    )


def public_programs() -> str:
    """Public programs that ran unmodified on a null GPU."""
    rows = result("noted.json")["public_programs"]["rows"]
    return table(("program", "null GPU", "result"), rows, right=3)


def wheels() -> str:
    """What small programs that use extension wheels reach on a null GPU."""
    rows = list[tuple[str, ...]]()
    for row in result("wheels.json"):
        reserved = f"{row['reserved'] >> 20:,} MiB" if "reserved" in row else row["error"]
        if "outside" in row:
            reserved += f", and {row['outside']} outside of PyTorch"
        reached = ["yes" if stage in row["stages"] else "no" for stage in STAGES]
        rows.append((row["wheel"], row["torch"], *reached, reserved))
    headings = ("wheel", "PyTorch", "loads", "small call", "program", "peak reserved, or the error")
    rows.sort(key=lambda row: (row[4] == "no", row))
    return table(headings, rows, right=6)


def published_edits() -> str:
    """What edits need or save by their authors' measurements, and what `whatif` estimates."""
    noted = result("noted.json")["published_edits"]
    rows = list[tuple[str, ...]]()
    for row in noted["needs"]:
        estimate, low, high = row["estimate"]
        error = f"{estimate / row['published'] - 1:+.1%}"
        needs = f"{estimate:.2f} GB ({low:.2f} to {high:.2f})"
        rows.append((row["program"], row["edit"], f"{row['published']:.2f} GB", needs, error))
    for row in noted["savings"]:
        saves, error = row["estimate"], f"{row['estimate'] / row['published'] - 1:+.1%}"
        published = f"saves {row['published']:,} MiB"
        rows.append((row["program"], row["edit"], published, f"saves {saves:,} MiB", error))
    return table(("program", "edit", "published", "estimate", "error"), rows, right=4)


def driver_calls() -> str:
    """How many results of the driver are equal, in words."""
    noted = result("noted.json")["driver_calls"]
    return (
        "`make gpu ONLY=driver` makes sequences of driver calls and records each result. An H100"
        f" with driver {_driver()} and the null GPU return the same in {noted['equal']:,} of"
        f" {noted['results']:,} results. `tests/null_gpu/test_measured_driver.py` compares the"
        " bytes of allocations and of pools, and the attributes of pointers, line by line."
    )


def _driver() -> str:
    words = str(agreement.comparison()["real"]["driver"]).split()
    return next(word for word in words if word.count(".") == 2 and word[0].isdigit())


def fidelity() -> str:
    """`caching` against PyTorch's own allocator on a null GPU."""
    headings = ("program", "allocs", "same address", "segment calls", "same calls", "peak reserved")
    keys = ("allocs", "placed_equal", "segment_calls", "segment_calls_equal", "peak_reserved")
    return table(
        headings,
        (
            (row["program"], *(f"{row[key]:,}" for key in keys))
            for row in result("fidelity.json")["rows"]
        ),
    )


def measured_stages() -> str:
    """What four stages of `make gpu` found on an H100, in words."""
    _, replays = replayed()
    blocks, _ = filled()
    rows = _rows("integrity")
    costs = json.loads((GPU / "costs/call_costs.json").read_text(encoding="utf-8"))
    fast, slow = pool_costs(costs["measured"]["costs"])
    return (
        f"- `integrity`: {len(rows)} replays with {len({row['allocator'] for row in rows})}"
        f" allocators filled and compared {blocks}. No word was wrong, and no request failed."
        f" As a test of the check, one word was changed on purpose, and the check found it.\n"
        f"- `replays`: bytes, peaks, device calls and failures against those of the simulated"
        f" device. {replays}. [Devices](devices.md#measured-on-an-h100) has the device times.\n"
        "- `costs`: the ranges of [estimated device time](devices.md#estimated-device-time) include"
        f" the measured costs. With no other work on the GPU, a block from the driver's pool"
        f" takes {units.seconds(fast)} where the pool has memory, and {units.seconds(slow)} where"
        " it has to grow;\n  `cudaFree` waits for kernels that run."
    )


def pool_costs(costs: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """Seconds of a block of 1 MiB from the driver's pool: from its memory, and while it grows."""
    found = {
        row["case"]: float(row["median"])
        for row in costs
        if row["call"] == "cuMemAllocFromPoolAsync" and row["bytes"] == 1 << 20
    }
    return found["hit"], found["miss"]


def _rows(stage: str) -> list[dict[str, Any]]:
    found = json.loads((GPU / f"{stage}/{stage}.json").read_text(encoding="utf-8"))
    rows: list[dict[str, Any]] = found["measured"]["rows"]
    return rows


def replayed() -> tuple[str, str]:
    """The replays on a GPU that a simulated device could repeat, and those that it could not."""
    every = _rows("replays")
    compared = [row for row in every if "simulated" in row]
    counts = ("peak_reserved", "peak_allocated", "peak_requested", "malloc_calls", "failures")
    equal = [row for row in compared if not set(counts) & set(row["differs"])]
    less = min(
        row["gpu"]["peak_reserved"] / row["simulated"]["peak_reserved"] - 1 for row in compared
    )
    rest = sorted({row["allocator"] for row in every if "simulated" not in row})
    return (
        f"{len(every)} replays that used the memory of an H100",
        f"{len(compared)} were compared: equal in {len(equal)}; the others reserve at most"
        f" {-less:.1%} less. The {len(every) - len(compared)} of"
        f" {' and '.join(f'`{name}`' for name in rest)} were not",
    )


def filled() -> tuple[str, int]:
    """The blocks that were filled with a pattern, and how many words were wrong."""
    rows = _rows("integrity")
    blocks, size = (sum(row[name] for row in rows) for name in ("blocks", "bytes"))
    return f"{blocks:,} blocks with {size / 2**40:.1f} TiB", sum(row["wrong_words"] for row in rows)


def following_values() -> str:
    """What following the values that the host knows costs, in words."""
    noted = result("noted.json")["following_values"]
    told = (
        f"{slow} ms instead of {fast} ms for {step}, {slow / fast:.2f} times as much"
        for step, slow, fast in noted["steps"]
    )
    return f"It costs processor time to follow values: {'; '.join(told)} ({noted['from']})."


def measured_values() -> str:
    """Whether programs compute the same on all allocators, in words."""
    losses = [
        abs(value / other - 1)
        for name in ("gpt2-train", "llama3-8b-lora")
        for found, native in [_outcomes(name)]
        for outcomes in found.values()
        for value, other in zip(outcomes, native, strict=True)
    ]
    found, native = _outcomes("llm-decode")
    equal = {name: len(native) - (unlike(one, native) or 0) for name, one in found.items()}
    own = [equal[name] for name in equal if name.startswith("torch-")]
    return (
        f"The programs compute the same values on all allocators. All losses agree within"
        f" {max(losses):.2%}. In decoding, the sums of the chosen tokens agree in"
        f" {min(equal.values())} to {max(equal.values())} of {len(native)} batches, and between"
        f" PyTorch's own allocators in {min(own)} to {max(own)}: where two tokens are nearly"
        " equally likely, another order of additions chooses the other token."
    )


def _outcomes(workload: str) -> tuple[dict[str, list[float]], list[float]]:
    """What a program computed, by allocator, and with PyTorch's own one on the same GPU."""
    folder = next(
        path.parent for path in gpu_runs.RESULTS.glob(f"*/programs/{workload}--torch.json")
    )
    found = {
        path.stem.partition("--")[2]: gpu_runs.measured(path)["outcomes"]
        for path in sorted(folder.glob(f"{workload}--*.json"))
    }
    native = found.pop("torch")
    return found, native


PARTS = (
    recordings,
    agreement_programs,
    agreement_operators,
    agreement_context,
    agreement_caching,
    measured_programs,
    agreement_others,
    agreement_layout,
    agreement_counts,
    snapshots_of_a_transformer,
    public_programs,
    wheels,
    published_edits,
    driver_calls,
    fidelity,
    measured_stages,
    following_values,
    measured_values,
)
"""What stands on pages between the marks of `docs.generate.claims`."""
