# SPDX-License-Identifier: Apache-2.0
"""What is computed from drawn traces, and from small files of other kinds, is as it was frozen."""

import hashlib
import io
import json
import pickle
from dataclasses import fields, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from allocbench.replays.replayed import replayed
from allocbench.workloads import ALLOC, Trace, catalog, pprof, pytorch_settings, xla_buffers
from allocbench.workloads.alignment import agreement
from allocbench.workloads.block_lifetimes import lifetimes, read_offsets, write_blocks
from allocbench.workloads.block_table import BlockTable
from allocbench.workloads.contents import contents
from allocbench.workloads.coverage import Coverage, from_json, imported, to_json
from allocbench.workloads.distribution import Distribution
from allocbench.workloads.errors import errors_naming
from allocbench.workloads.exporters.perfetto import write_perfetto
from allocbench.workloads.formats import how_to_record
from allocbench.workloads.generator import Generator, Option
from allocbench.workloads.graphs import parse_graph
from allocbench.workloads.modelled_workspaces import marked, modelled, sentence
from allocbench.workloads.plain_csv import write_csv
from allocbench.workloads.step_orders import kinds_of_steps, other_orders, shuffled
from allocbench.workloads.streaming import first_events
from allocbench.workloads.trace_features import features
from allocbench.workloads.vocabulary import Provenance
from tests.fuzz.damage import damaged
from tests.gold import Gold, outcome
from tests.tflite_models import tflite_file
from tests.traces import in_parts, make
from tests.workloads.drawn_texts import varied
from tests.workloads.importers import drawn
from tests.workloads.memory_dumps import ASSIGNMENT, PROFILE, RANGES, profile


def _drawn(seed: int) -> Trace:
    """A trace with any columns."""
    rng = Random(seed)
    trace = drawn.program(seed, rng.choice([3, 30, 120]))
    columns: dict[str, Any] = {
        name: np.array([rng.randrange(len(trace.labels)) for _ in range(len(trace))], np.uint32)
        for name in ("module", "kind", "line", "stack")
        if rng.random() < 0.3
    }
    labels = tuple(marked(name, "gemm") if rng.random() < 0.2 else name for name in trace.labels)
    return replace(trace, labels=labels, **columns)


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_traces(first: int, gold: Gold) -> None:
    found = {str(seed): _computed(_drawn(seed), Random(seed)) for seed in range(first, first + 30)}
    gold(f"traces_{first}", found)


def _computed(trace: Trace, rng: Random) -> dict[str, Any]:
    other = _drawn(rng.randrange(9))
    streamed = in_parts(trace, rng.randrange(1, 40))
    assert streamed.features == features(trace)
    assert contents(streamed, 3) == contents(trace, 3) or trace.label is not None
    table = BlockTable.of(trace)
    some = np.array([n for n in range(len(table)) if rng.random() < 0.3], np.int64)
    later = table.with_copies(some, table.born[some] + 2.5, table.freed[some] + rng.randrange(9))
    kept = np.array([rng.random() < 0.8 for _ in range(len(later))], np.bool_)
    blocks, csv = io.BytesIO(), io.BytesIO()
    return {
        "features": features(trace),
        "contents": vars(contents(trace, 3)) | {"sizes": None},
        "contents in parts": vars(contents(streamed, 5)) | {"sizes": None},
        "numbers": [trace.max_load, trace.load, trace.steps, trace.requested, trace.blocks],
        "relabeled": trace.relabeled({"forward": "step", "": "x", "aten::mm": "forward"}),
        "without pools": trace.without_pools(),
        "pool events": trace.pool_events(),
        "lifetimes": lifetimes(trace),
        "first": first_events(trace, 2),
        "shuffled": shuffled(trace, rng.randrange(99)),
        "others": [len(other_orders(trace, 3, 1)), kinds_of_steps(trace)],
        "agreement": [agreement(trace, other), agreement(trace, other, rng.choice([1, 512]))],
        "changed": replace(later.only(kept), trims=(1.5, 3.0)).to_trace() if some.size else None,
        "modelled": [modelled(trace), sentence(modelled(trace))],
        "blocks": [outcome(write_blocks, trace, blocks), digest(blocks.getvalue())],
        "csv": [outcome(write_csv, trace, csv), digest(csv.getvalue())],
    }


def digest(content: bytes) -> str:
    """The length of some bytes and the begin of their hash."""
    return f"{len(content)} {hashlib.sha256(content).hexdigest()[:12]}"


@pytest.mark.parametrize("first", range(0, 200, 100))
def test_broken_traces(first: int, gold: Gold) -> None:
    """One value is another: the first broken rule, as a whole and in parts."""
    found = {}
    for seed in range(first, first + 100):
        rng, trace = Random(seed), _drawn(seed % 20)
        array = rng.choice([*trace.columns().values()])
        array[rng.randrange(len(array))] = rng.choice([0, 1, 2, 5, 12, 99, array.max()])
        found[str(seed)] = [outcome(trace.first_broken), outcome(trace.validate)]
        parts = outcome(in_parts, trace, rng.randrange(1, 40))
        assert isinstance(parts, dict) == (found[str(seed)][0] is not None)
    gold(f"broken_traces_{first}", found)


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_exports(first: int, gold: Gold) -> None:
    found: dict[str, Any] = {}
    for seed in range(first, first + 20):
        written = drawn.snapshot(seed)
        found[f"snapshot {seed}"] = {
            name: digest(pickle.dumps(json.dumps(part))) for name, part in written.items()
        }
        spec = drawn.SPECS[seed % len(drawn.SPECS)]
        result, sink = replayed(_drawn(seed), spec, "sim:90MiB"), io.BytesIO()
        write_perfetto(result, sink)
        events = json.loads(sink.getvalue())["traceEvents"]
        kinds = {name: [one for one in events if one["ph"] == name] for name in "MCXi"}
        found[f"perfetto {seed}"] = {
            name: digest(json.dumps(of).encode()) for name, of in kinds.items()
        }
    gold(f"exports_{first}", found)


# --- other files


def _assignment(seed: int) -> str:
    """A buffer assignment of XLA with values that share bytes and instants."""
    rng, lines, ranges, count = Random(seed), ["BufferAssignment:"], list[str](), 0
    for number in range(rng.randrange(1, 6)):
        size = 256 * rng.randrange(1, 40)
        kind = rng.choice(["preallocated-temp", "preallocated-temp", "parameter 0", "constant"])
        lines.append(f"allocation {number}: size {size}, {kind}:")
        for _ in range(rng.randrange(9)):
            offset = 256 * rng.randrange(size // 256)
            length = rng.randrange(0, size - offset + 1)
            name = f"v.{count}" + rng.choice(["", "{0}", "{1} (phi)"])
            count += 1
            shape = f"(size={length},offset={offset}): f32[{length // 4}]{{0}}"
            lines.append(f" value: <{count} {name} @0> {shape}")
            begin = rng.randrange(20)
            place = name.removesuffix(" (phi)") + ("" if "{" in name else "{}")
            if rng.random() < 0.95:
                ranges.append(f"    {place}:{begin}-{begin + rng.randrange(6)}")
    lines += ["Used values:", " value: <1 not.counted @0> (size=4,offset=0): f32[1]{0}"]
    if rng.random() < 0.8:
        lines += ["HloLiveRange:", "  BufferLiveRange:", *ranges, "  Live ranges at 4 (peak):"]
    return "\n".join(lines)


def test_buffer_assignments(gold: Gold) -> None:
    def read(text: str) -> Any:
        content = text.encode("utf-8", "replace")
        whole = xla_buffers.parse_assignment(io.BytesIO(content), Path("a"))
        plan = outcome(xla_buffers.temporary_blocks, whole)
        offsets = plan[1] if isinstance(plan, tuple) else [0]
        aligned = [xla_buffers.alignment_of(offsets, most) for most in (64, 4096)]
        held = xla_buffers.read_held(io.BytesIO(content), Path("a"))
        return whole, plan, aligned, held, held.total

    rng = Random(1)
    texts = [_assignment(seed) for seed in range(80)]
    texts += [varied(ASSIGNMENT + RANGES, rng) for _ in range(40)]
    gold("buffer_assignments", {str(n): outcome(read, text) for n, text in enumerate(texts)})


def test_memory_profiles(gold: Gold) -> None:
    def read(content: bytes) -> Any:
        return pprof.read(io.BytesIO(content), Path("a"))

    rng = Random(2)
    files = ["/x/site-packages/jax/lax.py", "/me/train.py", "/me/model.py", ""]
    contents = [PROFILE]
    for n in range(30):
        stacks = [
            (
                [
                    (f"f{rng.randrange(3)}", rng.choice(files), rng.randrange(300))
                    for _ in range(n % 4)
                ],
                rng.choice([0, 5, 4096, 1 << 40, (1 << 63) - 1, 1 << 63]),
                rng.choice(["gpu:0", ""]),
            )
            for _ in range(rng.randrange(1, 6))
        ]
        contents.append(profile(stacks))
    for n in range(60):
        content = bytearray(contents[n % 31])
        content[rng.randrange(len(content))] = rng.choice([0, 1, 9, 128, 255])
        contents.append(bytes(content))
    gold("memory_profiles", {str(n): outcome(read, one) for n, one in enumerate(contents)})


def test_graphs(gold: Gold, tmp_path: Path) -> None:
    tflite = tflite_file(tmp_path / "model.tflite").read_bytes()

    def read(content: bytes) -> Any:
        with errors_naming("graph"):
            return parse_graph(io.BytesIO(content))

    found = {}
    for seed in range(120):
        rng = Random(seed)
        tensors: Any = [
            {"bytes": rng.choice([0, 64, 2**62, 2**62 + seed % 2]), "name": f"t{n}"}
            | rng.choice([{}, {"placement": rng.choice(["arena", "persistent", "dynamic", "x"])}])
            for n in range(rng.randrange(1, 6))
        ]

        def some(tensors: list[Any] = tensors, rng: Random = rng) -> list[int]:
            return [rng.randrange(-1, len(tensors) + rng.choice([0, 0, 1])) for _ in range(2)]

        operators = [
            {"kind": "ADD", "inputs": some(), "outputs": some()}
            | rng.choice([{}, {"temporaries": []}])
            for _ in range(rng.randrange(3))
        ]
        graph = {"tensors": tensors, "operators": operators, "inputs": some()}
        if seed % 3 == 0:
            graph = damaged(graph, rng.randbytes(8))
        found[str(seed)] = outcome(read, json.dumps(graph).encode())
        model = bytearray(tflite)
        for _ in range(seed % 3):
            model[rng.randrange(len(model))] = rng.choice([0, 1, 2, 4, 6, 9, 255])
        found[f"tflite {seed}"] = outcome(read, bytes(model))
    gold("graphs", found)


def test_offsets_of_a_plan(gold: Gold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, blocks = Path("plan"), lifetimes(make([(ALLOC, n, 8) for n in range(3)]))
    rows: tuple[str, ...] = (
        "0,0\n1,8\n2,16\n",
        "2,16\n0,0x10\n1,8.0\n",
        "0,0\n1,8\n",
        "0,0\n0,1\n1,2\n2,3\n",
    )
    rows += ("0,0\n1,8\n3,16\n", "0,x\n1,8\n2,4\n", f"0,{2**63}\n1,8\n2,4\n", "0,-1\n1,1\n2,2\n")
    found = {"nothing": outcome(read_offsets, path, blocks)}
    for text in (
        *("id,offset\n" + one for one in rows),
        "id,x\n0,1\n",
        "offset,id,y\n5,0,1\n6,1,\n7,2,\n",
    ):
        path.write_text(text)
        found[text] = outcome(read_offsets, path, blocks)
    gold("offsets", found)


# --- coverage, settings, options, numbers


def _coverage(seed: int) -> Coverage:
    rng = Random(seed)
    values: dict[str, list[Any]] = {
        "begins": ["later"],
        "ends": ["stopped", "open", "failure"],
        "events": [False],
        "contradiction": ["why"],
        "masks": ["a.py:1", "a.py:1 b.py:2", "a.py:1 b.py:2 c.py:3"],
        "device_free": [0, 4096],
    }
    names = rng.sample([field.name for field in fields(Coverage)], rng.choice([0, 1, 3, 6]))
    return Coverage(**{name: rng.choice(values.get(name, [1, 5 << 20, 7 << 30])) for name in names})


def test_coverage(gold: Gold) -> None:
    found: dict[str, Any] = {}
    trace = drawn.program(1, 5)
    sources = [
        {"format": name, **more}
        for name in ("PyTorch memory snapshot", "PyTorch profiler trace", "RMM log", "", "x")
        for more in ({}, {"failed_request": 5}, {"frees_left_out": 2, "frees_missing": 3})
    ]
    for seed in range(150):
        one, rng = _coverage(seed), Random(seed)
        assert from_json(to_json(one)) == one
        provenance = Provenance(
            kind=rng.choice(["recorded", "imported"]),
            live_at_start=rng.choice([0, 1]),
            extra=rng.choice(sources),
        )
        found[str(seed)] = {
            "told": [one.whole, one.bound, one.card, one.range(9 << 30), one.sentence],
            "record": how_to_record(replace(trace, coverage=one, provenance=provenance)),
            "imported": imported(provenance),
            "stored": to_json(one),
            "damaged": outcome(from_json, damaged(to_json(one) or {"x": [seed]}, rng.randbytes(8))),
        }
    gold("coverage", found)


def test_settings(gold: Gold) -> None:
    """Settings in snapshots and as text, and how a snapshot stores them."""
    found: dict[str, Any] = {}
    confs = [
        "",
        "max_split_size_mb:64",
        "garbage_collection_threshold:0.8,large_segment_size_mb:40",
    ]
    confs += [
        "expandable_segments:True,throw_on_cudamalloc_oom:True",
        "x:y",
        "roundup_power2_divisions:4",
    ]
    confs += [
        "per_process_memory_fraction:0.5,max_non_split_rounding_mb:30",
        "a,b",
        "release_lock:True",
    ]
    for seed in range(80):
        rng = Random(seed)
        told = {
            rng.choice(["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"]):
            rng.choice(confs),
            "max_split_size": rng.choice([-1, 0, 64 << 20, (1 << 62) - 1, 1 << 62, True, "x"]),
            "garbage_collection_threshold": rng.choice([0, 0.0, 0.8, 1, -1, "x"]),
            "expandable_segments": rng.choice([True, False, 1]),
            "roundup_power2_divisions": rng.choice(
                [{}, {"1": 0, "256": 4, "512": 2}, {"1": 1}, {"x": 3, "3": 5, "0": 2}, {"4": -1}, 7]
            ),
        }  # fmt: skip
        for name in rng.sample([*told], rng.randrange(4)):
            del told[name]
        data: Any = rng.choice([{"allocator_settings": told}] * 3 + [{}, []])
        settings = outcome(pytorch_settings.read_settings, data, rng.choice(confs))
        found[str(seed)] = [settings]
        if isinstance(settings, pytorch_settings.RecordedSettings):
            options = settings.options
            written = outcome(_stored, options)
            found[str(seed)] += [written, pytorch_settings.conf_of(options)]
    gold("settings", found)


def _stored(options: dict[str, str]) -> Any:
    with errors_naming("settings"):
        return pytorch_settings.stored(options)


_VALUES = [
    "0",
    "1",
    "2.5",
    "1e3",
    "4KiB",
    "1.5MiB",
    "3TiB",
    "1.5",
    "-1",
    "x",
    "9" * 19,
    "1.0001KiB",
    "",
    "a",
]
_OPTIONS = [
    Option("n", "count", 1, "", 0),
    Option("n", "count", 1, "", 2, 1000),
    Option("b", "bytes", 1, ""),
    Option("b", "bytes", 1, "", 1024, 1 << 40),
    Option("x", "number", 1.0, "", 0.5, 4),
    Option("c", "choice", "a", "", choices=("a", "b")),
]


def test_options(gold: Gold) -> None:
    def read(option: Option, text: str) -> Any:
        with errors_naming("option"):
            value = option.read(text)
        return value, option.written(value)

    found = {
        f"{n} {text}": outcome(read, option, text)
        for n, option in enumerate(_OPTIONS)
        for text in _VALUES
    }
    gold("options", found)


def test_distributions(gold: Gold) -> None:
    found = {}
    for seed in range(20):
        rng, one = Random(seed), Distribution()
        for _ in range(rng.randrange(1, 4)):
            one.add(np.array([rng.randrange(30) for _ in range(rng.randrange(1, 20))]))
        percentiles = [one.percentile(percent) for percent in (0, 10, 50, 99.5, 100)]
        found[str(seed)] = [len(one), one.values, one.counts, one.mean(), one.max(), percentiles]
    gold("distributions", found)


# --- generators

_SIZES = {"count": [1, 2, 5, 9, 20], "bytes": [1024, 4096, 10_000, 1 << 20, 3 << 20]}


def _spec(generator: Generator, rng: Random) -> str:
    chosen = []
    for option in generator.options:
        if option.kind == "choice":
            chosen.append(f"{option.name}={rng.choice(option.choices)}")
        elif option.kind in _SIZES:
            value = max(int(option.least), rng.choice(_SIZES[option.kind]))
            chosen.append(f"{option.name}={min(value, int(option.most or value))}")
    return f"{generator.name}:{','.join(chosen)}"


@pytest.mark.parametrize(
    "name", [one.name for one in catalog.generators() if one.kind == "synthetic"]
)
def test_synthetic_workloads(name: str, gold: Gold) -> None:
    generator, rng = catalog.info(name), Random(name)
    assert isinstance(generator, Generator)
    specs = [_spec(generator, rng) for _ in range(16)] + [f"{name}:x=1", f"{name}:seed=a"]
    gold(f"synthetic_{name}", {spec: outcome(catalog.load, spec) for spec in specs})


def test_names_of_workloads(gold: Gold) -> None:
    specs = [
        "gpt2-train:x=1",
        "nothing",
        "random:of=ramp",
        "random:allocs",
        "a b",
        "",
        "ramp:blocks=3",
    ]
    found: dict[str, Any] = {
        spec: [catalog.knows(spec), outcome(catalog.load, spec)] for spec in specs
    }
    found["sizes"] = catalog.sizes()
    found["bundled"] = [outcome(catalog.bundled, name) for name in ("gpt2-train", "ramp")]
    found["options"] = {one.name: one.options for one in catalog.generators()}
    found["names"] = [catalog.names(), [one.kind for one in catalog.generators()]]
    gold("workload_names", found)
