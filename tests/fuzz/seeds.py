# SPDX-License-Identifier: Apache-2.0
"""Valid inputs of every target, from which the fuzzer derives others."""

import io
import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from allocbench.reports.rows import results
from allocbench.workloads import Trace, catalog, write_csv, write_parquet
from allocbench.workloads.block_lifetimes import write_blocks
from tests.conftest import CASES
from tests.questions.test_error_text import KNOWN
from tests.result_rows import row
from tests.tflite_models import tflite_file
from tests.traces import GOOD, make
from tests.workloads.importers import snapshots
from tests.workloads.importers.test_kineto import memory, ran
from tests.workloads.importers.test_rmm_log import LOG
from tests.workloads.memory_dumps import ASSIGNMENT, PROFILE, RANGES
from tests.workloads.serving.test_architectures import LLAMA
from tests.workloads.serving.test_requests import LOGS

_GRAPH = {
    "tensors": [{"bytes": 4096, "name": "x", "placement": "arena"}, {"bytes": 64}, {"bytes": 0}],
    "operators": [{"kind": "SOFTMAX", "inputs": [0, -1], "outputs": [1], "temporaries": [2]}],
    "inputs": [0],
    "outputs": [1],
    "variables": [],
}
_DEVICES = ["80GiB", "24GB,addresses=up,seed=3", "1GiB,fail_rate=0.5", "8GiB,context=1MiB"]


def _bytes(trace: Trace, write: Callable[[Trace, BinaryIO], None]) -> bytes:
    file = io.BytesIO()
    write(trace, file)
    return file.getvalue()


def _snapshot() -> dict[str, Any]:
    """A small one; `corpus.zip` has parts of recordings that reach what whole recordings reach."""
    recorder = snapshots.Recorder()
    recorder.free(recorder.alloc(1000))
    recorder.alloc(5 << 20, stream=3)
    recorder.oom(1 << 40)
    return snapshots.snapshot(recorder)


def _profile() -> bytes:
    events = [
        ran("aten::empty", 1, 5),
        memory(2, 4096, 512),
        memory(3, 8192, 64, device=1),
        memory(4, 4096, -512),
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def _results() -> list[bytes]:
    rows = [row("bfc"), row("caching")]
    key = {"workload": "w", "trace": "0", "allocator": "bfc", "device": "sim:1GiB", "code": "1"}
    record = {"key": key, "row": rows[0], "error": None}
    return [results.to_json(rows).encode(), json.dumps(record).encode() + b"\n"]


def _model() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return tflite_file(Path(folder, "model.tflite")).read_bytes()


def seeds() -> dict[str, list[bytes]]:
    """Some inputs for each of `inputs.TARGETS`."""
    good = make(GOOD)
    large = catalog.load("ramp:blocks=100")
    csv = [_bytes(good, write_csv), b"ID;Op;Size;extra\r\n0x7f;alloc;1.0;\r\n0x7f;free;;\r\n"]
    rows = (f"alloc,{n},{1 + n % 9 * 300},{n},{n}\n" for n in range(200))
    csv.append(("op,id,size,stream,pool\n" + "".join(rows)).encode())
    metadata = json.dumps({"version": 2, "labels": ["", "step"], "provenance": {}, "pools": []})
    return {
        "parquet": [_bytes(trace, write_parquet) for trace in (good, large)],
        "parquet_columns": [b"\0\0\5" + bytes(range(64)) + b"\0\0" + metadata.encode()],
        "csv": csv,
        "lifetimes": [_bytes(good, write_blocks), b"id,lower,upper,size,offset\na,0,2,64,0\n"],
        "graph": [json.dumps(_GRAPH).encode()],
        "tflite": [_model()],
        "snapshot": [pickle.dumps(_snapshot(), protocol=4)],
        "snapshot_values": [json.dumps(_snapshot()).encode()],
        "contradictions": [bytes([file, 0, 128, file, file, 4 * file]) for file in range(60)],
        "profile": [_profile()],
        "rmm_log": [LOG.encode()],
        "request_log": [text.encode() for text in LOGS],
        "model_config": [
            json.dumps(LLAMA | more).encode()
            for more in ({}, {"quantization_config": {"quant_method": "awq", "bits": 4}})
        ],
        "error_text": [text.encode() for text, *_ in KNOWN.values()],
        "memory_profile": [PROFILE],
        "buffer_assignment": [(ASSIGNMENT + RANGES).encode()],
        "gzip": [*csv, LOG.encode()],
        "results": _results(),
        "allocator": [case.spec.encode() for case in CASES],
        "device": [device.encode() for device in _DEVICES],
        "workload": [
            f"{generator.name}:{option.name}={option.default}".encode()
            for generator in catalog.generators()
            for option in generator.options
        ],
    }
