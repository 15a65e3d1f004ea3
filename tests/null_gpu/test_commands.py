# SPDX-License-Identifier: Apache-2.0
"""The commands that run programs on null GPUs: what they write, print and return."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from allocbench.null_gpu import launch
from allocbench.null_gpu.device import read as read_device
from allocbench.workloads import read
from tests.null_gpu import PROGRAMS, VERSIONS, asked, python, recorded


def test_record_writes_one_trace_with_steps(tmp_path: Path) -> None:
    options = "--device null:h100 --labels lines --steps 2"
    done = recorded(tmp_path / "trace.parquet", "training", options=options)
    assert "reads of computed values, all of them 0" not in done.stderr  # none before the end
    trace = read(tmp_path / "trace.parquet")
    assert trace.provenance.device == "null:h100-sxm-80gb"
    marks = [trace.labels[block] for block in trace.block[trace.op == 2]]
    assert marks.count("step") == 2
    assert any("training.py" in label for label in trace.labels)


def test_record_of_two_ranks_writes_two_traces(tmp_path: Path) -> None:
    line = ("record", "--device", "null:a100-40gb,count=2", "-o", str(tmp_path / "trace.parquet"))
    launcher = (python(), "-m", "torch.distributed.run", "--nproc-per-node", "2")
    asked(*line, "--", *launcher, str(PROGRAMS / "distributed.py"))
    traces = sorted(path.name for path in tmp_path.glob("*.parquet"))
    assert traces == ["trace-rank0-gpu0.parquet", "trace-rank1-gpu1.parquet"]


@pytest.mark.parametrize("version", VERSIONS)
def test_run_without_an_allocator_keeps_pytorchs_own(version: str, tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "rows.json"), "--record", str(tmp_path / "trace.parquet"))
    line = ("run", "--device", "null:h100", *files, "--", python(version))
    done = asked(*line, str(PROGRAMS / "training.py"))
    printed = json.loads(done.stdout)
    assert printed["backend"] == "native"
    title = "native on null:h100-sxm-80gb, NVIDIA H100 80GB HBM3 (process "
    assert title in " ".join(done.stderr.split())
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row["device"] == "null:h100-sxm-80gb"
    assert row["device_kind"] == "null"
    assert row["peak_allocated"] == printed["peak allocated"]
    assert row["peak_reserved"] == printed["peak reserved"]
    trace = read(tmp_path / "trace.parquet")
    assert trace.max_load == row["peak_requested"]
    assert row["blocks"] == trace.allocs


@pytest.mark.parametrize("version", VERSIONS)
def test_the_numbers_of_pytorchs_own_allocator_outlast_resets_by_the_program(
    version: str, tmp_path: Path
) -> None:
    line = ("run", "--allocator", "native", "--device", "null:h100,memory=1GiB", "--json")
    program = (python(version), str(PROGRAMS / "resets.py"), "3")
    done = asked(*line, str(tmp_path / "rows.json"), "--", *program, code=3)
    assert "note: 1 read of a computed value, which was 0; 1 at resets.py:" in done.stderr
    accelerator = json.loads(done.stdout)["accelerator"]
    rows = json.loads((tmp_path / "rows.json").read_text())
    assert [
        (row["peak_reserved"] >> 20, row["blocks"], row["failures"], row["retries"]) for row in rows
    ] == [(100, 3 + accelerator, 1, 1), (64, 1, 0, 0)]  # the program, and its forked child


def test_the_same_program_on_caching_has_the_numbers_of_pytorchs_own(tmp_path: Path) -> None:
    rows = []
    for allocator in ("native", "caching"):
        path = tmp_path / f"{allocator}.json"
        line = ("run", "--allocator", allocator, "--device", "null:h100", "--json", str(path))
        asked(*line, "--", python(), str(PROGRAMS / "training.py"))
        rows += json.loads(path.read_text())
    own, ours = ({name for name in row if row[name] is not None} for row in rows)
    assert own < ours
    differ = {name for name in own if rows[0][name] != rows[1][name]}
    assert differ == {"workload", "allocator"}


def test_the_programs_own_exit_code_and_output_are_kept(tmp_path: Path) -> None:
    done = recorded(tmp_path / "a.parquet", "values", "fail", code=7)
    assert json.loads(done.stdout)["written"] == [3, 1, 4, 1, 5]
    assert (tmp_path / "a.parquet").exists()


def test_a_shape_that_depends_on_a_value_is_reported_at_once(tmp_path: Path) -> None:
    options = "--device null:h100 --value computed=3"
    done = recorded(tmp_path / "a.parquet", "values", options=options)
    assert json.loads(done.stdout)["computed"] == 3
    warnings = [line for line in done.stderr.splitlines() if "warning" in line]
    assert [line.split(": ")[2] for line in warnings] == [
        "values.py:18 torch.nonzero(there)",
        'values.py:20 seen["selected"] = list(there[there > 0].shape)',
    ]
    assert "the shape of nonzero depends on a computed value" in warnings[0]
    assert "note: 2 reads of computed values, 1 of them set by --value, the others 0" in done.stderr


@pytest.mark.parametrize("how", ["wait", "wait caught"])
def test_a_loop_that_waits_for_a_value_ends_at_the_time_limit(how: str, tmp_path: Path) -> None:
    options = "--device null:h100 --timeout 2"
    done = recorded(tmp_path / "a.parquet", "values", *how.split(), options=options)
    assert "while torch.empty(1, " in done.stderr
    assert read(tmp_path / "a.parquet").coverage.ends == "stopped"


def test_the_time_limit_does_not_interrupt_what_a_program_writes_at_its_end(tmp_path: Path) -> None:
    program = "import signal, torch; take = torch.cuda.memory._snapshot; x = torch.ones(9).cuda()"
    program += "; torch.cuda.memory._snapshot = lambda: (signal.raise_signal(14), take())[1]"
    limited = ("--device", "null:h100", "--timeout", "600", "-o", str(tmp_path / "a.parquet"))
    asked("record", *limited, "--", python(), "-c", program)
    assert read(tmp_path / "a.parquet").allocs == 1


def test_a_cpu_build_is_an_error_of_one_line(tmp_path: Path) -> None:
    line = ("record", "--device", "null:h100", "-o", str(tmp_path / "a.parquet"), "--")
    done = asked(*line, sys.executable, "-c", "import torch", code=2)
    first = done.stderr.splitlines()[0]
    assert first.startswith("error: torch 2.13.0+cpu in ")
    assert "is not built for CUDA" in first
    assert not list(tmp_path.iterdir())


def test_a_package_that_calls_nvidias_libraries_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cupy.py").write_text("loaded = True\n")
    program = "import importlib.util as u; assert u.find_spec('cupy'); import cupy"
    line = ("record", "--device", "null:h100", "-o", str(tmp_path / "a.parquet"), "--")
    done = asked(*line, sys.executable, "-c", program, code=1, cwd=tmp_path)
    assert "ImportError: cupy calls NVIDIA's libraries itself" in done.stderr


def test_a_server_is_started_until_it_is_ready(tmp_path: Path) -> None:
    line = ("serving", "--run", "--device", "h100-sxm-80gb", "--json", str(tmp_path / "a.json"))
    done = asked(*line, "--", python(), str(PROGRAMS / "served.py"), "fork")
    told = json.loads((tmp_path / "a.json").read_text())
    assert told["start"]["kv_tokens"] == 421_696
    assert told["start"]["reserved"] == 3 << 28  # of the engine, which the server kills at its end
    weights = next(line for line in told["lines"] if line["part"] == "weights")
    assert weights["printed"] == round(14.9596 * (1 << 30))
    assert weights["computed"] == 16_062_619_648
    assert "vLLM 0.11.2 was ready after" in done.stdout
    assert f"without the start: {told['computed']['kv_tokens']:,} tokens (-0.2 %)" in done.stdout
    options = ("--engine", "vllm-0.11", "--device", "h100-sxm-80gb", "--capture-sizes", "none")
    computed = asked("serving", "llama-3-8b", *options, "--json", "-")
    assert told["computed"] == json.loads(computed.stdout)


def test_processes_that_others_kill_are_recorded_at_the_time_limit(tmp_path: Path) -> None:
    options = "--device null:h100 --timeout 600"
    recorded(tmp_path / "a.parquet", "served", "spawn", "alarm", options=options)
    assert max(read(path).max_load for path in tmp_path.glob("*.parquet")) == 3 << 28


def test_a_server_that_is_not_ready_in_time_is_an_error() -> None:
    waits = "import time, torch; torch.zeros(1, device='cuda'); time.sleep(600)"
    line = ("serving", "--run", "--timeout", "1", "--", python(), "-c", waits)
    done = asked(*line, code=2)
    assert done.stderr.endswith(": not ready after 1 s; --timeout sets the limit\n")


def test_processes_find_the_hook_whatever_the_program_does_to_their_path(tmp_path: Path) -> None:
    environment = os.environ | launch.environment(read_device("null:l4"), tmp_path)
    hook = environment["PYTHONPATH"].partition(os.pathsep)[0]
    shown = shlex.join([sys.executable, "-c", "import os; print(os.environ['PYTHONPATH'])"])
    for before, path in {
        "PYTHONPATH=src": f"{hook}:src",
        "PYTHONPATH=src:$PYTHONPATH": f"{hook}:src:{environment['PYTHONPATH']}",
        "PYTHONPATH=": hook,
        "env -u PYTHONPATH": hook,
        "": environment["PYTHONPATH"],
    }.items():
        line = ["sh", "-c", f"{before} {shown}"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == path


def test_nvidia_smi_says_what_is_free(tmp_path: Path) -> None:
    environment = os.environ | launch.environment(read_device("null:l4,count=2"), tmp_path)
    query = "nvidia-smi --query-gpu=memory.used,memory.free,utilization.gpu --format=csv,noheader"
    shows = f"""
import subprocess, torch
held = torch.zeros(1 << 28, device="cuda")
print([size >> 20 for size in torch.cuda.mem_get_info()])
print(subprocess.check_output("{query}", shell=True, text=True))
"""
    line = [str(python()), "-c", shows]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
    first, *said = done.stdout.split("\n")
    free, total = json.loads(first)
    assert total - free >= 1 << 10
    assert said[:2] == [f"{total - free} MiB, {free} MiB, 0 %", f"0 MiB, {total} MiB, 0 %"]


def test_programs_find_the_properties_of_the_card_in_nvidia_smi(tmp_path: Path) -> None:
    device = read_device("null:l4,count=2")
    environment = os.environ | launch.environment(device, tmp_path)

    def said(*options: str) -> str:
        return subprocess.run(
            ["nvidia-smi", *options], env=environment, capture_output=True, text=True, check=True
        ).stdout

    query = "--query-gpu=index,name,memory.total,compute_cap,pstate"
    total = device.memory >> 20
    shown = f"NVIDIA L4, {total} MiB, 8.9, [N/A]"
    assert said(query, "--format=csv,noheader").splitlines() == [f"0, {shown}", f"1, {shown}"]
    assert said("--query-gpu=memory.total", "--format=csv,nounits").splitlines() == [
        "memory.total",
        *[str(total)] * 2,
    ]
    assert said("-L").splitlines()[1].startswith("GPU 1: NVIDIA L4 (UUID: GPU-")
    with pytest.raises(subprocess.CalledProcessError):
        said("-q")
