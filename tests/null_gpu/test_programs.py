# SPDX-License-Identifier: Apache-2.0
"""Programs on null GPUs, with each version of PyTorch's CUDA build that is there."""

from pathlib import Path
from typing import Any

import pytest

from allocbench.null_gpu.launch import Limits, notes, summary
from tests.null_gpu import VERSIONS, needs, seen

MIB, GIB = 1 << 20, 1 << 30
USABLE = 85_017_493_504  # of an H100
of_each_version = pytest.mark.parametrize("version", VERSIONS)


@of_each_version
def test_a_program_sees_the_card_and_its_end(version: str, tmp_path: Path) -> None:
    found = seen("memory", tmp_path, version=version)
    assert (found["available"], found["devices"]) == (True, 1)
    assert found["name"] == "NVIDIA H100 80GB HBM3"
    assert (found["capability"], found["multiprocessors"]) == ([9, 0], 132)
    assert (found["total"], found["total of mem_get_info"]) == (USABLE, USABLE)
    assert found["free"] == USABLE - 552 * MIB - 2 * MIB
    assert found["allocated"] == GIB
    assert found["reserved"] == 2 * GIB + 2 * MIB
    assert "CUDA out of memory. Tried to allocate" in found["error"]
    assert (found["retries"], found["ooms"]) == (1, 1)
    assert found["reserved after"] == GIB  # the retry gave the cache back
    assert "oom" in found["actions"]
    assert {"alloc", "free_completed", "segment_alloc", "segment_free"} <= set(found["actions"])
    assert found["segments"] == [GIB]
    assert found["has frames"]
    assert found["drawn"]


@of_each_version
def test_streams_graphs_and_pools(version: str, tmp_path: Path) -> None:
    found = seen("streams", tmp_path, version=version)
    assert found == {
        "events": True,
        "priority": -1,
        "stream in snapshot": True,
        "capturing": True,
        "pools": 2,
        "reading while capturing": True,
        "pool": True,
    }


@of_each_version
def test_values_that_the_host_wrote_are_read_and_others_counted(
    version: str, tmp_path: Path
) -> None:
    found = seen("values", tmp_path, version=version)
    assert found == {
        "written": [3, 1, 4, 1, 5],
        "part": [1, 4],
        "moved": [3, 1, 4, 1, 5],
        "computed": 0,
        "selected": [2],
        "true": False,
        "saved": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    }
    left = summary(tmp_path)
    assert dict(left.reads) == {
        'values.py:17 seen["computed"] = there.sum().item()': 1,
        "values.py:18 torch.nonzero(there)": 1,
        'values.py:20 seen["selected"] = list(there[there > 0].shape)': 2,
        'values.py:21 seen["true"] = bool(there.any())': 1,
    }
    assert dict(left.shapes) == {
        "values.py:18 torch.nonzero(there)": 1,
        'values.py:20 seen["selected"] = list(there[there > 0].shape)': 2,
    }
    assert notes(left)[0].startswith("2 reads of computed values, all of them 0; 1 at values.py:17")


@of_each_version
def test_reads_give_the_values_that_the_user_chose(version: str, tmp_path: Path) -> None:
    limits = Limits(values={"computed": 7, "values.py:21": 1, "other": 3})
    found = seen("values", tmp_path, version=version, limits=limits)
    assert (found["computed"], found["true"], found["saved"][1]) == (7, True, 1.0)
    assert (summary(tmp_path).chosen, summary(tmp_path).unused) == (2, ["other"])


@of_each_version
def test_shapes_have_the_sizes_that_the_user_chose(version: str, tmp_path: Path) -> None:
    found = seen("values", tmp_path, version=version, limits=Limits(values={"there": 5}))
    assert found["selected"] == [5]
    left = summary(tmp_path)
    assert left.shapes == {}
    assert left.chosen == sum(left.reads.values()) == 5


@of_each_version
def test_checks_of_pytorch_pass_and_the_scale_of_gradients_is_known(
    version: str, tmp_path: Path
) -> None:
    limits = Limits(values={"number_with_a_long_name": 2})  # beyond what is shown of the line
    found = seen("known", tmp_path, version=version, limits=limits)
    assert found == {"shapes": [[4], []], "scale": 1024.0, "chosen": [2], "ctc": True}
    left = summary(tmp_path)
    assert left.chosen == 1
    assert left.shapes == {}
    assert any("print(drawn" in place for place in left.reads)


@of_each_version
def test_what_is_written_in_uncommon_ways_is_not_known(version: str, tmp_path: Path) -> None:
    assert seen("uncounted_writes", tmp_path, version=version)["known"] == []


@of_each_version
def test_in_random_programs_known_values_are_those_of_the_cpu(version: str, tmp_path: Path) -> None:
    found = seen("random_programs", tmp_path, "0", "400", "20", version=version)
    assert found["different"] == []  # seed, lines, values on the CPU, values on the null GPU
    assert found["reads"] / 4 < found["known"] < found["reads"]


@of_each_version
def test_values_that_the_host_knows_are_read_and_shapes_have_their_sizes(
    version: str, tmp_path: Path
) -> None:
    found = seen("known_values", tmp_path, version=version)
    assert found == {
        "different": [],
        "changed": [[[2.0, 4.0, 0.0], [0.0, 4.0, 0.0]]] * 2 + [[12, 9, 14, 11, 11]],
        "raised": True,
        "unknown": [0.0, 0, 0.0],
        "backward": [[5, 7], [5, 7], [8, 4, 4]],
        "finite": [True, False],
        "distinct": 15,
        "without padding": [3, 6],
        "compiled": [],
        "scripted": 9.0,
        "fused": [3, 4],
    }
    left = summary(tmp_path)
    assert sum(left.reads.values()) == 4
    assert len(left.shapes) == 1  # a mask that is not known; its backward pass selects the same


@of_each_version
def test_random_numbers_of_the_gpu_are_drawn_on_the_host(version: str, tmp_path: Path) -> None:
    found = seen("drawn", tmp_path, version=version)
    assert found == {
        "reads": {},
        "unlike": {},  # of 2,000 numbers, a quarter is selected
        "different": 1.0,
        "of the host": True,
        "repeated": [True] * 3,
        "targets": [32],
        "drawn targets": [32],
        "edges": 2,
        "too many": [1_000_000],  # of more than the host draws, half is selected
        "not known": [0.0, 0.0],
    }


@of_each_version
def test_choices_of_a_model_are_possible_ones(version: str, tmp_path: Path) -> None:
    share = {"completions": [8, 48], "beams": [5, 5], "speculation": True, "sampler": [6, False]}
    share |= {"evaluation": 0.5, "assigner": 5, "masked": [400, 400, [50] * 8]}
    share |= {"copied": 400, "periods": [4] * 3, "policy": [4, 3]}
    assert seen("possible", tmp_path, version=version) == share
    full = seen("possible", tmp_path, version=version, limits=Limits(share=1.0))
    assert full == share | {"speculation": True, "copied": 800, "masked": [800, 800, [100] * 8]}


@of_each_version
def test_a_router_sends_tokens_evenly_to_experts(version: str, tmp_path: Path) -> None:
    found = seen("experts", tmp_path, version=version)
    for each in (1, 2, 3):
        assert found[str(each)] == [40 * each // 8] * 8
        assert found[f"{each}, inference"] == [80 * each // 8] * 8
    assert found["known"] == [[0, 2], [1, 2]]
    assert found["different"] == [2] * 12
    assert found["nearest"] == [16_667] * 6
    assert found["reads"] == {}


@of_each_version
def test_generation_returns_its_maximum_length(version: str, tmp_path: Path) -> None:
    if version == "2.5.1":
        pytest.skip("transformers 5 needs PyTorch 2.6")
    needs("transformers", version)
    found = seen("beams", tmp_path, version=version)
    completions = {sampled: [[8] * 4, 4] for sampled in ("True", "False")}
    assert found == {"found": [4, 10], "heard": [[2, 7]] * 2, "completions": completions}


@of_each_version
def test_lbfgs_makes_all_of_its_iterations(version: str, tmp_path: Path) -> None:
    found = seen("lbfgs", tmp_path, version=version)
    assert found["cpu"][0] == found["cuda"][0] == [18, 18, 5]
    iterations, evaluations, history = found["cuda"][1]  # with a line search
    assert (iterations, history) == (18, found["cpu"][1][2])
    assert evaluations == 3 + iterations  # one for each, and one at the begin of a step
    assert found["close"] == [True, False]
    assert summary(tmp_path).reads == {}


@of_each_version
def test_detectors_of_torchvision_select_as_many_boxes_as_on_the_cpu(
    version: str, tmp_path: Path
) -> None:
    needs("torchvision", version)
    found = seen("detectors", tmp_path, version=version)
    sampled = found["sampled"]
    (boxes, objects, detected), there = sampled["cuda"], sampled["cpu"]
    assert boxes == there[0] == [1024, 2000]
    assert objects == [256, 200]  # a quarter in training; fewer with random weights
    assert objects[0] >= there[1][0]
    assert detected == there[2] == [100, 100]
    (anchors,), (few,) = (found["classified"][device] for device in ("cuda", "cpu"))
    assert 0.95 * anchors < few <= anchors  # the loss leaves out some of them
    assert found["detected"] == [100, 300, 100]
    assert not [site for site in found["shapes"] if "torchvision" in site or "where" in site]


@of_each_version
def test_functions_that_are_followed_are_those_of_pytorch(version: str, tmp_path: Path) -> None:
    found = seen("replaced_functions", tmp_path, version=version)
    assert found == {"before": 6, "after": 6}  # the call of torch.compile


@of_each_version
def test_a_backward_pass_selects_as_many_as_the_forward_pass(version: str, tmp_path: Path) -> None:
    found = seen("known_values", tmp_path, version=version, limits=Limits(values={"mask": 3}))
    assert found["backward"] == [[5, 7], [5, 7], [8, 4, 4]]
    assert summary(tmp_path).shapes == {}


@of_each_version
def test_a_program_may_end_right_after_a_backward_pass(version: str, tmp_path: Path) -> None:
    assert seen("ends_in_backward", tmp_path, version=version) == {}


@of_each_version
def test_compiled_programs(version: str, tmp_path: Path) -> None:
    needs("triton", version)
    caches: dict[str, Any] = {
        "TRITON_CACHE_DIR": str(tmp_path / "triton"),
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    found, again = (seen("compiled", tmp_path, version=version, **caches) for _ in range(2))
    assert found["kernels"] > 0
    # With the memory in which kernels are measured, which is most of it.
    assert again["requested"] == pytest.approx(found["requested"], rel=0.01)
    assert found["pools"] == 2  # that of the captured graphs


@of_each_version
def test_the_profiler_sees_operators_and_memory(version: str, tmp_path: Path) -> None:
    found = seen("profiled", tmp_path, version=version)
    assert found["calls"] == 3
    assert found["bytes"] > 0
    assert found["trace"]


@of_each_version
def test_hugging_face_trains_and_generates(version: str, tmp_path: Path) -> None:
    if version == "2.5.1":
        pytest.skip("transformers 5 needs PyTorch 2.6")
    needs("transformers", version)
    found = seen("hugging_face", tmp_path, version=version, HF_HUB_OFFLINE="1")
    assert found["steps"] == 4
    assert (found["generated"], found["stopped"]) == ([2, 28], [2, 20])
    assert found["searched"][0] == 2  # its length is a computed value
    assert found["searches"] == 5
    # Without zeros in host memory, the same copied; with a zero, and with one written by a kernel;
    # converted, in inference mode; compiled, where values are not known to the host on any GPU.
    assert found["masked"] == [False, False, True, True, False, True]


@of_each_version
def test_masks_and_positions_are_known_if_they_are_from_the_host(
    version: str, tmp_path: Path
) -> None:
    assert seen("masks", tmp_path, version=version) == {
        "known": [True] * 4,
        "converted": [True] * 3,
        "hiding": [False] * 4,
        "computed": [True, True, False],
        "drawn": [True, False],
        "bytes": False,  # most bytes of whole numbers are 0
        "one sequence": [False] * 3,
        "packed": [True] * 3,
        "grown": [True, [6, 9], False],
        "searched": [True, False],
    }


@of_each_version
def test_every_library_answers(version: str, tmp_path: Path) -> None:
    found = seen("libraries", tmp_path, version=version)
    assert found["convolution"] == [[64, 3, 7, 7]]
    assert found["lstm"] == [[8, 32, 256], [1024, 128]]
    assert found["fft"] == [[8, 256, 129]]
    assert len(found) == 20


@of_each_version
def test_recurrent_layers_have_projections(version: str, tmp_path: Path) -> None:
    found = seen("projected", tmp_path, version=version)
    shapes = [[5, 3, 64], [4, 3, 32], [4, 3, 128], [32, 128]]
    assert found == {"shapes": shapes, "distinct": True}


@of_each_version
def test_workers_and_forks(version: str, tmp_path: Path) -> None:
    found = seen("processes", tmp_path, version=version)
    assert found["sums"] == [120.0, 376.0, 632.0, 888.0]
    assert found["child of a fork"] == 3
    assert (found["with_parent"], found["alone"]) == (5, 0)  # the cached bytes are the parent's


@of_each_version
def test_one_rank_of_many_runs_without_the_others(version: str, tmp_path: Path) -> None:
    found = seen("distributed", tmp_path, version=version, on="null:h100,rank=3,world=64")
    assert (found["rank"], found["world"]) == (3, 64)
    assert found["whole"] == 64 * found["shard"] == 64 * MIB
    assert summary(tmp_path).shapes == {}  # batch normalization asks which ranks have elements


@of_each_version
def test_ranks_send_each_other_objects(version: str, tmp_path: Path) -> None:
    program, on = "objects_between_ranks", "null:h100,count=2"
    ranks = seen(program, tmp_path, str(tmp_path), version=version, on=on)["ranks"]
    for rank, found in enumerate(ranks):
        assert found["all_gather"] == ["of 0", "of 1"]
        assert found["gather"] == ([{"rank": 0}, {"rank": 1}] if rank == 1 else None)
        assert found["broadcast"] == [100_000, 0]
        assert found["scatter"] == [f"for {rank}"]
        assert found["received"] == ([1, 2] if rank == 1 else [None, None])
        assert found["peak"] > 100_000  # objects pass through the GPU
        numbers = found["numbers"]
        assert numbers["all_gather"] == numbers["whole"] == [[10, 20], [11, 21]]
        assert (numbers["SUM"], numbers["MAX"]) == ([21, 41], [11, 21])
        assert numbers["mean"] == [10.5, 20.5]
        assert numbers["reduce"] == ([21, 41] if rank == 1 else None)
        assert numbers["broadcast"] == [11, 21]
        assert numbers["all_to_all"] == ([20, 21] if rank == 1 else [10, 11])
        both = [[11 - rank, 21 - rank], [111 - rank, 121 - rank]]
        assert numbers["sent"] == (both if rank == 0 else [*both, [True, False], [0, 0]])
        assert numbers["not known by all"] == [0, 0]
        assert numbers["not followed"] == ([0, 0] if rank else [10, 20])  # its own data
    assert ranks[1]["one"] == ["alone"]


@of_each_version
def test_a_rank_alone_has_no_objects_of_others(version: str, tmp_path: Path) -> None:
    program, on = "objects_between_ranks", "null:h100,rank=1,world=3"
    found = seen(program, tmp_path, "mesh", version=version, on=on)
    assert found["all_gather"] == ["of 1"] * 3
    assert found["gather"] == [{"rank": 1}] * 3
    assert found["broadcast"] == [0, None]
    assert found["scatter"] == ["for 1"]
    assert found["received"] == [None, None]
    assert found["one"] == ["alone"]
    assert found["numbers"]["all_gather"] == [[11, 21]] * 3
    assert found["numbers"]["SUM"] == [33, 63]
    assert found["numbers"]["broadcast"] == [11, 21]


@of_each_version
def test_other_ways_to_reserve(version: str, tmp_path: Path) -> None:
    usual, expandable, asynchronous = (
        seen("training", tmp_path, version=version, PYTORCH_CUDA_ALLOC_CONF=conf)
        for conf in ("", "expandable_segments:True", "backend:cudaMallocAsync")
    )
    assert (usual["backend"], usual["expandable"]) == ("native", False)
    assert (expandable["backend"], expandable["expandable"]) == ("native", True)
    assert asynchronous["backend"] == "cudaMallocAsync"
    for other in (expandable, asynchronous):
        assert other["peak allocated"] <= usual["peak allocated"]
