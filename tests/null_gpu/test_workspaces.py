# SPDX-License-Identifier: Apache-2.0
"""Workspaces of NVIDIA's libraries on a null GPU: rules, options, and marks in traces."""

import ctypes
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from allocbench.allocators import SpecError
from allocbench.null_gpu.device import read, workspace_rules
from allocbench.null_gpu.launch import Summary, core, notes
from allocbench.workloads import read as read_trace
from allocbench.workloads.modelled_workspaces import modelled
from tests.null_gpu import VERSIONS, asked, python, recorded
from tests.null_gpu import seen as seen_on_null
from tests.null_gpu.core import seen

FFT = """
sizes, out = (ctypes.c_longlong * 2)(8, 32), c_size_t()
none, one = c_void_p(), ctypes.c_longlong(1)
def plan(sizes, kind, read, batch):
    gpu.null_cufftXtMakePlanMany(c_int(0), c_int(len(sizes)), sizes, none, one, one, c_int(read),
                                 none, one, one, c_int(kind), ctypes.c_longlong(batch), byref(out),
                                 c_int(kind))
    return out.value
for kind in (4, 5, 6):  # CUDA_C_32F, CUDA_C_64F, CUDA_C_16F
    seen[str(kind)] = plan(sizes, kind, kind, 3)
gpu.null_workspaces.restype = c_uint64
seen["uses"] = gpu.null_workspaces(None, c_uint64(0))
"""
MEASURED = (
    FFT.replace("for kind in (4, 5, 6):", "for kind in ():")
    + """
long = ctypes.c_longlong
seen["found"] = [
    plan((long * 1)(4096), 4, 4, 64), plan((long * 1)(65536), 4, 4, 1),
    plan((long * 1)(65536), 5, 5, 1), plan((long * 1)(65536), 4, 0, 1),
    plan((long * 2)(1000, 1000), 4, 4, 4), plan((long * 1)(1 << 20), 4, 0, 1),
]
"""
)
SOLVER = """
out, n = c_int(), c_int(10)
for letter in "SDCZ":
    function = getattr(gpu, f"null_cusolverDn{letter}getrf_bufferSize")
    function(c_void_p(), n, n, c_void_p(), n, byref(out))
    seen[letter] = out.value
unknown = (c_uint64 * 10)()
gpu.null_workspaces_unknown(unknown)
seen["unknown"] = sum(unknown)
"""


def test_the_table_has_the_rules_of_the_library_and_a_source_for_each() -> None:
    library = ctypes.CDLL(str(core()))
    library.null_workspace_rules.restype = ctypes.c_char_p
    assert library.null_workspace_rules().decode().split() == list(workspace_rules())
    for rule in workspace_rules().values():
        assert rule.source
        assert rule.default.isdecimal() or rule.default in rule.assumptions
        assert rule.default != "0" or rule.source.startswith("Unknown: ")


def test_a_fourier_transform_asks_for_the_least_that_is_documented() -> None:
    elements = 8 * 32 * 3
    found = seen(FFT, fft_workspace="once")
    assert (found["4"], found["5"], found["6"]) == (elements * 8, elements * 16, elements * 4)
    assert found["uses"] == 3
    assert seen(FFT, fft_workspace="worst")["5"] == 8 * elements * 16
    assert seen(FFT, fft_workspace="12345")["5"] == 12345
    assert seen(FFT, fft_workspace="0") == {"4": 0, "5": 0, "6": 0, "uses": 0}


def test_a_fourier_transform_asks_for_what_was_measured_on_an_h100() -> None:
    expected = [0, 524_288, 1_048_576, 262_152, 0, 4_194_312]
    assert seen(MEASURED, fft_workspace="shared")["found"] == expected
    assert workspace_rules()["fft_workspace"].default == "shared"


def test_dropout_has_a_generator_for_each_thread_as_on_an_h100() -> None:
    program = """
out = c_size_t()
gpu.null_cudnnDropoutGetStatesSize(c_void_p(), byref(out))
seen["bytes"] = out.value
"""
    found = seen(program, dropout_states="generators", multiprocessors=132)
    assert found == {"bytes": 6_488_064}
    assert seen(program, dropout_states=0) == {"bytes": 0}
    assert workspace_rules()["dropout_states"].default == "generators"


def test_attention_asks_for_what_was_measured_on_an_h100(tmp_path: Path) -> None:
    found = seen_on_null("attention", tmp_path, on="null:h100,graph_workspace=attention")
    assert found == {
        "equal heads": [256, 532_736],
        "shared heads": [256, 202_113_280],
        "single query, 853 keys": [66_688],
        "single query, 1173 keys": [133_248],
        "single query, 1979 keys": [133_248],
        "single query, 3016 keys": [266_368],
        "single query, 6529 keys": [532_608],
        "single query of 80 sequences": [80 * 20 * 64 * 2],  # the result: there is no workspace
    }
    without = seen_on_null("attention", tmp_path, on="null:h100,graph_workspace=0")
    assert without["equal heads"][1] == 532_736 - 256


def test_what_is_not_known_is_0_and_counted() -> None:
    assert seen(SOLVER) == {"S": 0, "D": 0, "C": 0, "Z": 0, "unknown": 4}
    chosen = seen(SOLVER, solver_workspace=1000)  # in elements, as cuSOLVER answers
    assert chosen == {"S": 250, "D": 125, "C": 125, "Z": 63, "unknown": 0}
    (line,) = notes(Summary(unknown={"solver_workspace": 2, "graph_workspace": 1000}))
    assert line.startswith("1,002 calls of NVIDIA's libraries got a workspace of 0 bytes")
    assert line.endswith(": graph_workspace 1,000, solver_workspace 2")


def test_another_assumption_is_an_option_of_the_device() -> None:
    device = read("null:h100,convolution_workspace=copies,fft_workspace=1MiB,rnn_reserve=gates")
    assert device.workspaces == {"convolution_workspace": "copies", "fft_workspace": "1048576"}
    assert device.name.endswith(",convolution_workspace=copies,fft_workspace=1048576")
    assert device.settings()["rnn_workspace"] == "gates"
    assert read("null:h100").name == "null:h100-sxm-80gb"
    with pytest.raises(
        SpecError, match="fft_workspace=twice: write a number of bytes or shared or once or"
    ):
        read("null:h100,fft_workspace=twice")


@pytest.mark.parametrize("labels", ["none", "operators"])
def test_allocs_of_workspaces_are_marked_and_counted(labels: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    on = "null:a100-40gb,convolution_workspace=copies,fft_workspace=once,solver_workspace=1000"
    done = recorded(path, "workspaces", options=f"--device {on} --labels {labels}")
    # A forward convolution copies its input and its filter, with 3 channels padded to 4; the
    # backward pass of the first layer copies its output as well.
    copies = 2 * 16 * 16 * 4 * 4 + 8 * 3 * 3 * 4 * 4
    gates, kept = 2 * 4 * 32 * 7 * 2 * 4 + (8 << 20), 5 * 32 * 7 * 2 * 4 + 256
    expected = {
        "convolution_workspace": (6, 6 * copies + 3 * 2 * 14 * 14 * 8 * 4),
        "fft_workspace": (1, 5 * 64 * 8),
        "rnn_workspace": (3, 3 * gates),
        "rnn_reserve": (1, kept),
        "solver_workspace": (1, 1000),
    }
    assert modelled(read_trace(path)) == expected
    allocs, total = (sum(one) for one in zip(*expected.values(), strict=True))
    assert f"{allocs} allocs of {total:,} bytes in all are modelled workspaces: " in done.stderr
    shown = asked("inspect", str(path))
    assert f"{allocs} allocs of {total:,} bytes" in " ".join(shown.stdout.split())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("choice", ["heuristics", "deterministic"])
def test_convolutions_need_the_same_bytes_through_both_interfaces_of_cudnn(
    choice: str, version: str, tmp_path: Path
) -> None:
    def requested(on: str, disabled: str) -> dict[str, Any]:
        return seen_on_null(
            "convolutions",
            tmp_path,
            choice,
            on=on,
            version=version,
            TORCH_CUDNN_V8_API_DISABLED=disabled,
        )

    copies = [requested("null:h100,convolution_workspace=copies", disabled) for disabled in "01"]
    assert copies[0] == copies[1]
    without = requested("null:h100,convolution_workspace=0", "1")
    assert without == requested("null:h100,convolution_workspace=0", "0")
    # Copies of 32 bytes of channels, of the input and the filter, and backward of the output, too.
    forward, output = 2 * 16 * 16 * 32 + 16 * 3 * 3 * 32, 2 * 14 * 14 * 16 * 4
    steps = 2 * (forward + 2 * (forward + output))
    assert copies[0]["float"][1] - without["float"][1] == steps
    assert copies[0]["channels last"] == without["channels last"]
    assert copies[0]["grouped"] == without["grouped"]
    assert copies[0]["one pixel"][1] > without["one pixel"][1]
    spatial = [requested("null:h100,convolution_workspace=spatial", disabled) for disabled in "01"]
    assert spatial[0] == spatial[1] == copies[0] | {"one pixel": without["one pixel"]}
    layout = [requested("null:h100", disabled) for disabled in "01"]
    assert layout[0] == layout[1]
    # A forward pass of so few pixels needs nothing. The others copy the output, too. The filter's
    # gradient has two tiles of 64 x 64 floats, and parts of their sums for each of the 132
    # multiprocessors, with their counters.
    steps = 2 * (2 * (forward + output + 16) + 132 * (64 * 64 * 4 + 4) + 159)
    assert layout[0]["float"][1] - without["float"][1] == steps
    grouped = steps + 2 * (forward + output + 16) - 2 * 3 * 16 * 3 * 3 * 16
    assert layout[0]["grouped"][1] - without["grouped"][1] == grouped
    # A product of 16 x 8 floats for each of two images.
    assert layout[0]["one pixel"][1] - without["one pixel"][1] == 2 * 2 * 16 * 8 * 4


def test_a_benchmark_through_the_legacy_interface_finds_the_same_algorithms(tmp_path: Path) -> None:
    found, chosen = (
        seen_on_null(
            "convolutions",
            tmp_path,
            choice,
            on="null:h100,convolution_workspace=copies",
            TORCH_CUDNN_V8_API_DISABLED="1",
        )
        for choice in ("benchmark", "heuristics")
    )
    # In the first of two steps, each direction is tried with the largest workspace first.
    forward, output = 2 * 16 * 16 * 32 + 16 * 3 * 3 * 32, 2 * 14 * 14 * 16 * 4
    assert found["float"][1] - chosen["float"][1] == forward + 2 * (forward + output)
    assert found["grouped"] == chosen["grouped"]


H100 = Path(__file__).parents[1] / "data" / "h100"


def test_what_recurrent_networks_keep_is_as_measured(tmp_path: Path) -> None:
    measured = json.loads((H100 / "recurrent.json").read_text())["measured"]
    found = seen_on_null("workspace_sizes", tmp_path, "recurrent", on="null:h100")
    assert found.keys() == measured.keys()
    trained = [name for name in measured if name.endswith(", forward")]
    unlike = {name for name in trained if found[name][-1] != measured[name][-1]}  # the reserve
    assert (len(trained), len(unlike)) == (39, 3)
    assert all("dropout" in name for name in unlike)
    both = [sum(map(sum, requests.values())) for requests in (found, measured)]
    assert both[0] == pytest.approx(both[1], rel=0.25)


def test_the_layout_of_convolutions_is_close_to_a_measurement(tmp_path: Path) -> None:
    measured = json.loads((H100 / "convolutions.json").read_text())["measured"]

    def compared(formula: str) -> tuple[int, int]:
        on = f"null:h100,convolution_workspace={formula}"
        found = seen_on_null("workspace_sizes", tmp_path, "convolutions", on=on)
        assert found.keys() == measured.keys()
        return (
            sum(found[name] == measured[name] for name in measured),
            sum(map(sum, found.values())),
        )

    assert len(measured) == 215
    total = sum(map(sum, measured.values()))
    equal, requested = compared("layout")
    assert equal >= 90
    assert requested == pytest.approx(total, rel=0.06)
    without, least = compared("0")
    assert without < 60
    assert least < total / 2


def test_convolutions_of_networks_ask_for_what_was_measured(tmp_path: Path) -> None:
    path = H100 / "networks.json"
    measured = [row[-1] for row in json.loads(path.read_text())["rows"]]
    found = seen_on_null("network_workspaces", tmp_path, str(path), on="null:h100")["workspaces"]
    close = sum(abs(ours - there) < 2048 for ours, there in zip(found, measured, strict=True))
    wrong = sum(abs(ours - there) for ours, there in zip(found, measured, strict=True))
    assert close / len(measured) > 0.8
    assert wrong / sum(measured) < 0.15
    assert sum(found) == pytest.approx(sum(measured), rel=0.05)


@pytest.mark.parametrize(
    ("part", "calls", "least_close", "most_wrong"),
    [("dimensions", 1844, 0.7, 0.04), ("layers", 928, 0.6, 0.14)],
)
def test_convolutions_of_other_kinds_ask_for_about_what_was_measured(
    part: str, calls: int, least_close: float, most_wrong: float, tmp_path: Path
) -> None:
    measured = json.loads((H100 / f"{part}.json").read_text())["measured"]
    found = seen_on_null("convolution_workspaces", tmp_path, part, on="null:h100")
    found.pop("cudnn")
    measured = {name: requests for name, requests in measured.items() if name in found}
    assert found.keys() == measured.keys()
    total, wrong, close = 0, 0, 0
    for name, requests in measured.items():
        there, ours = sum(requests), sum(found[name])
        total, wrong = total + there, wrong + abs(there - ours)
        close += abs(there - ours) <= there / 50
    assert len(measured) == calls
    assert close / len(measured) > least_close
    assert wrong / total < most_wrong


def test_without_memory_for_a_workspace_convolutions_find_another_way_as_on_an_h100(
    tmp_path: Path,
) -> None:
    measured = json.loads((H100 / "layers.json").read_text())["measured"]
    found = seen_on_null("convolution_workspaces", tmp_path, "refused", on="null:h100")
    assert len(found) == 120
    for sides in (measured, found):
        requests = {name: sides[name] for name in found}
        assert not [name for name, sizes in requests.items() if str in map(type, sizes)]  # errors
        assert sum(-1 in sizes for sizes in requests.values()) > 20


REFUSED = """
import torch
from torch import nn

layer = nn.Conv2d(64, 64, 3, padding=1, bias=False).cuda()
images = torch.ones(64, 64, 56, 56, device="cuda")
for _ in range(3):
    layer(images).sum()
"""


def test_a_convolution_without_memory_for_its_workspace_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(REFUSED)
    on = "null:h100,context=0,memory=110MiB"
    done = asked("check", "--device", on, "--", python(), str(path))
    told = " ".join(done.stderr.split())
    assert "3 convolutions found no memory for a workspace and went on without it" in told
    assert done.stdout.startswith("FITS")
    assert "cudnn.benchmark" not in told
    path.write_text(f"import torch\ntorch.backends.cudnn.benchmark = True\n{REFUSED}")
    done = asked("check", "--device", "null:h100", "--", python(), str(path))
    assert "cudnn.benchmark is on" in " ".join(done.stderr.split())


def test_convolutions_that_are_tried_first_need_more_only_in_their_first_call() -> None:
    """What the note on `cudnn.benchmark` says, as it was measured."""
    measured = json.loads((H100 / "benchmarked.json").read_text())["measured"]
    firsts = {name: requests for name, requests in measured.items() if name.endswith("1")}
    assert len(firsts) == 2 * 148
    more = [max(sizes) - max(measured[f"{name[:-1]}2"]) for name, sizes in firsts.items()]
    assert max(more) > 13 << 30
    assert min(more) >= 0


def test_no_measured_convolution_asked_for_five_times_its_tensors() -> None:
    measured = json.loads((H100 / "convolutions.json").read_text())["measured"]
    form = re.compile(r"conv[23]d (\d+)->(\d+) ([\dx]+)(.*) on (\d+)x([\dx]+) (\w+)(.*), (\w+)")
    ratios = []
    for name, requests in measured.items():
        if (found := form.fullmatch(name)) is None:
            continue  # the size of the filter is not in the name
        of, to, batch = (int(found[group]) for group in (1, 2, 5))
        filters, pixels = ([*map(int, found[group].split("x"))] for group in (3, 6))
        filters *= len(pixels) // len(filters)
        told = {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", found[4])}
        stride, padding = told.get("stride", 1), told.get("padding", 0)
        reach = [(size - 1) * told.get("dilation", 1) for size in filters]
        out = [
            (side + 2 * padding - far - 1) // stride + 1
            for side, far in zip(pixels, reach, strict=True)
        ]
        element = 4 if found[7] == "float32" else 2
        tensors = [batch * of * math.prod(pixels), batch * to * math.prod(out)]
        tensors.append(of * to * math.prod(filters) // told.get("groups", 1))
        assert element * tensors[found[9] == "forward"] in requests, name
        ratios.append(max(requests) / (element * sum(tensors)))
    assert len(ratios) > 180
    assert 4 < max(ratios) < 5
