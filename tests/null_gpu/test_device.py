# SPDX-License-Identifier: Apache-2.0
"""Specs of null GPUs."""

import json
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from allocbench.allocators import SpecError
from allocbench.base.cards import cards
from allocbench.null_gpu.device import read
from allocbench.null_gpu.launch import (
    Limits,
    Summary,
    environment,
    notes,
    session,
    summary,
    values_of,
)
from allocbench.null_gpu.torch_build import NullGpuError, find
from tests.gold import said

GIB = 1 << 30


def test_a_card_has_what_its_driver_reports() -> None:
    device = read("null:rtx4090")
    assert (device.memory, device.context) == (25_377_888_010, 408 << 20)
    assert (device.compute.capability, device.compute.multiprocessors) == (89, 128)
    assert device.name == "null:rtx-4090-24gb"


def test_a_card_has_its_clock_rates() -> None:
    settings = read("null:t4").settings()
    rates = [settings[name] for name in ("clock_khz", "memory_clock_khz", "bus_bits")]
    assert rates == [1_590_000, 5_001_000, 256]
    # The bandwidth in GB/s of NVIDIA's data sheets follows from the memory's clock and bus.
    for card, bandwidth in {"rtx-3060": 360, "l40s": 864, "a100-40gb": 1555, "h100": 3350}.items():
        compute = read(f"null:{card}").compute
        found = 2 * compute.memory_clock_mhz * compute.bus_bits / 8 / 1000
        assert found == pytest.approx(bandwidth, rel=0.03)


def test_everything_can_be_overridden() -> None:
    device = read("null:a100-40gb,memory=23.5GiB,context=600MiB,count=2")
    assert (device.memory, device.context, device.count) == (47 * GIB // 2, 600 << 20, 2)
    assert device.name == "null:a100-40gb,memory=25232932864,context=629145600"
    for calls in ("cudaMalloc:0", "cudaMalloc:3:2,cudaFree:1", "cudaFree:1,cuInit:2:999"):
        failing = read(f"null:l4,fail={calls}")
        assert (failing.fail, failing.name) == (calls, f"null:l4-24gb,fail={calls}")


def test_a_name_of_several_cards_of_one_size_is_the_largest_chip() -> None:
    assert read("null:h100").card.name == "H100 SXM 80GB"
    assert read("null:h100-pcie").card.name == "H100 PCIe 80GB"


def test_every_nvidia_card_can_be_a_null_gpu() -> None:
    known = [card for card in cards() if not card.name.startswith("MI")]
    assert len(known) > 20
    assert all(read(f"null:{card.slug}").card == card for card in known)


def test_a_wrong_spec_is_an_error(told: Callable[..., None]) -> None:
    told("null_gpus", lambda spec: said(read, spec))


def test_limits_need_a_null_gpu() -> None:
    with (
        pytest.raises(SpecError, match="--steps, --timeout and --value are for null GPUs"),
        session(None, Limits(steps=3)),
    ):
        pass


def test_chosen_values_have_a_name_and_a_number() -> None:
    limits = Limits(5, None, values_of(["loss=1.5", "train.py:88=2", "a==3"]))
    assert limits == Limits(5, None, {"loss": 1.5, "train.py:88": 2.0, "a=": 3.0})
    for wrong in ("loss", "=1", "loss=much"):
        with pytest.raises(SpecError, match="write NAME=NUMBER, such as loss="):
            values_of([wrong])


def test_one_rank_of_many_gets_its_rank_and_world_size(tmp_path: Path) -> None:
    made = environment(read("null:h100,count=8,rank=11,world=64"), tmp_path)
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    assert [made[name] for name in names] == ["11", "3", "64", "8"]


def test_threads_that_wait_do_not_spin_unless_the_user_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    assert environment(read("null:l4"), tmp_path)["OMP_WAIT_POLICY"] == "PASSIVE"
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert environment(read("null:l4"), tmp_path)["OMP_WAIT_POLICY"] == "ACTIVE"


def test_the_counts_of_processes_are_added_up(tmp_path: Path) -> None:
    site, other = "train.py:88 loss.item()", "train.py:3 x.nonzero()"
    for number in range(2):
        told = {"reads": {site: 12, other: 1}, "shapes": {other: 1}, "kernels": 5, "chosen": number}
        told |= {"unknown": {"solver_workspace": 2 * number, "a_rule": 1}, "unrelated": False}
        told |= {"shared": number == 1, "outside": {"a.so": number << 20, "b.so": number << 30}}
        told |= {"unused": ["lss", f"rank{number}"], "without_kernels": "2.13.0" * (1 - number)}
        told |= {"workspace": number << 20, "forgone": 3, "benchmark": number == 1}
        (tmp_path / f"{number}.null.json").write_text(json.dumps(told))
    found = summary(tmp_path)
    assert (found.kernels, found.unknown) == (10, {"a_rule": 2, "solver_workspace": 2})
    assert (found.workspace, found.forgone, found.benchmark) == (1 << 20, 6, True)
    assert found.shared
    lines = notes(found)
    assert lines.pop(-3).startswith("cudnn.benchmark is on: ")
    assert lines == [
        "PyTorch 2.13.0 was built without kernels for this card, on which the program will fail;"
        " the bytes are those of a build that has them",
        "24 reads of computed values, 1 of them set by --value, the others 0; "
        "24 at train.py:88 loss.item()",
        "2 shapes depend on masks of computed values, of which 50% of the elements count as"
        " selected; 2 at train.py:3 x.nonzero()",
        "--value lss has no effect: no line that it names read a computed value",
        "4 calls of NVIDIA's libraries got a workspace of 0 bytes, mostly because its size is not"
        " known (allocbench list workspaces): a_rule 2, solver_workspace 2",
        "a.so held 1.00 MiB of the GPU's memory outside of PyTorch",
        "b.so held 1.00 GiB of the GPU's memory outside of PyTorch",
    ]
    assert notes(summary(tmp_path / "none")) == []
    (only,) = notes(Summary(unknown={"a_rule": 1}))
    assert only.startswith("1 call of NVIDIA's libraries got")
    (both,) = notes(Summary(unknown={"a_rule": 1, "solver_workspace": 1_000}))
    assert both.endswith(": solver_workspace 1,000, a_rule 1")


@pytest.mark.parametrize(
    ("system", "machine"), [("darwin", "arm64"), ("win32", "AMD64"), ("linux", "aarch64")]
)
def test_an_unsuitable_host_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, machine: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    complaint = f"the null GPU needs Linux on x86_64; this is {system} on {machine}"
    with pytest.raises(NullGpuError, match=complaint):
        environment(read("null:h100"), tmp_path)


@pytest.mark.parametrize(
    ("version", "cuda", "complaint"),
    [
        ("2.13.0+cpu", "None", "torch 2.13.0+cpu in {site} is not built for CUDA"),
        ("2.4.1", "'12.4'", "torch 2.4.1 in {site}: the null GPU works with torch 2.5 to 2.15"),
        ("2.16.0", "'13.2'", "torch 2.16.0 in {site}: the null GPU works with torch 2.5 to 2.15"),
    ],
)
def test_an_unsuitable_torch_is_an_error(
    tmp_path: Path, version: str, cuda: str, complaint: str
) -> None:
    package = tmp_path / "torch"
    (package / "lib").mkdir(parents=True)
    text = f"__version__ = '{version}'\ncuda: Optional[str] = {cuda}\n"
    (package / "version.py").write_text(text)
    if cuda != "None":
        (package / "lib" / "libtorch_cuda.so").touch()
    with pytest.raises(NullGpuError) as raised:
        find(package)
    assert complaint.format(site=tmp_path) in str(raised.value)
