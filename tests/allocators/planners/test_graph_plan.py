# SPDX-License-Identifier: Apache-2.0
"""Plans of graphs: TFLite's own offsets (see data/tflite/README.md), and each of its rules."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from allocbench import allocators
from allocbench.allocators import Graph, GraphPlan, Operator, Placement, Tensor, plan_graph

DATA = Path(__file__).parents[2] / "data/tflite"
MODELS: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / "models.json.gz").read_bytes()))
Op = tuple[str, list[int], list[int]]


def test_the_models_cover_every_rule() -> None:
    assert len(MODELS) == 48
    owners = [(index, t[2]) for model in MODELS for index, t in enumerate(model["tensors"])]
    assert sum(index != owner for index, owner in owners) == 112
    assert sum(len(op[3]) for model in MODELS for op in model["operators"]) == 212


def graph_of(model: dict[str, Any]) -> Graph:
    tensors = [
        Tensor(size, Placement.NONE if offset is None else Placement.ARENA)
        for size, offset, _ in model["tensors"]
    ]
    operators = [
        Operator(inputs, outputs, temporaries, name)
        for name, inputs, outputs, temporaries in model["operators"]
    ]
    return Graph(tensors, operators, model["inputs"], model["outputs"])


@pytest.mark.parametrize("model", MODELS, ids=[model["name"] for model in MODELS])
def test_tensor_for_tensor(model: dict[str, Any]) -> None:
    result = plan_graph(graph_of(model))
    assert result.offsets == [offset for _, offset, _ in model["tensors"]]
    assert result.owners == [owner for _, _, owner in model["tensors"]]
    assert result.arena_size == model["arena_size"]


def plan(
    operators: Iterable[Op],
    outputs: Iterable[int],
    inputs: Iterable[int] = (0,),
    sizes: dict[int, int] | None = None,
    placements: dict[int, Placement] | None = None,
    **options: Any,
) -> GraphPlan:
    """A graph of tensors of 64 bytes."""
    operators = list(operators)
    count = 1 + max(tensor for _, ins, outs in operators for tensor in ins + outs)
    tensors = [
        Tensor((sizes or {}).get(index, 64), (placements or {}).get(index, Placement.ARENA))
        for index in range(count)
    ]
    variables = options.pop("variables", [])
    result = [Operator(ins, outs, [], name) for name, ins, outs in operators]
    return plan_graph(Graph(tensors, result, list(inputs), list(outputs), variables), **options)


def owner(name: str, inputs: list[int], **others: Any) -> int:
    """The owner of tensor 3, the output of an operator that reads earlier tensors."""
    before: list[Op] = [("CONV_2D", [0], [1]), ("CONV_2D", [0], [2])]
    after: list[Op] = others.pop("after", [("CONV_2D", [3], [4])])
    return plan([*before, (name, inputs, [3]), *after], [4], **others).owners[3]


@pytest.mark.parametrize("name", ["ADD", "SUB", "MUL", "DIV"])
def test_arithmetic_takes_the_memory_of_either_input(name: str) -> None:
    later: list[Op] = [("CONV_2D", [1, 3], [4])]
    assert owner(name, [1, 2]) == 1
    assert owner(name, [1, 2], after=later) == 2
    assert owner(name, [1, 2], sizes={1: 128}) == 2
    assert owner(name, [1, 1]) == 3
    assert owner(name, [0, 2]) == 2
    assert owner(name, [1, 2], sizes=dict.fromkeys((1, 2, 3), 4)) == 3
    assert owner(name, [1, 2], placements={1: Placement.NONE}) == 2
    assert owner(name, [-1, 2]) == 2


@pytest.mark.parametrize("name", ["SOFTMAX", "DYNAMIC_UPDATE_SLICE"])
def test_some_operators_can_only_reuse_the_first_input(name: str) -> None:
    assert owner(name, [1, 2]) == 1
    assert owner(name, [1, 2], after=[("CONV_2D", [1, 3], [4])]) == 3


@pytest.mark.parametrize("name", ["RESHAPE", "SQUEEZE", "EXPAND_DIMS", "BITCAST"])
def test_reshaping_operators_share_even_with_other_readers(name: str) -> None:
    assert owner(name, [1, 2], after=[("CONV_2D", [1, 3], [4])]) == 1
    assert owner(name, [1, 2], sizes={1: 4, 3: 4}) == 1
    assert owner(name, [0, 2]) == 3


@pytest.mark.parametrize("name", ["CONV_2D", "", "LOG_SOFTMAX"])
def test_other_operators_share_nothing(name: str) -> None:
    assert owner(name, [1, 2]) == 3


def test_a_graph_output_has_its_own_memory() -> None:
    assert plan([("CONV_2D", [0], [1]), ("RESHAPE", [1], [2])], [2]).owners[2] == 2


def test_a_chain_of_in_place_operators_has_one_owner() -> None:
    chain: list[Op] = [("CONV_2D", [0], [1]), ("RESHAPE", [1], [2]), ("RESHAPE", [2], [3])]
    result = plan([*chain, ("CONV_2D", [0], [4]), ("CONV_2D", [3], [5])], [5])
    assert result.owners == [0, 1, 1, 1, 4, 5]
    assert result.offsets[4] not in {result.offsets[1], result.offsets[0]}


def test_preserved_intermediates_share_nothing_and_never_die() -> None:
    chain: list[Op] = [("CONV_2D", [0], [1]), ("RELU", [1], [2]), ("RESHAPE", [2], [3])]
    assert plan(chain, [3]).arena_size == 192
    result = plan([*chain, ("RELU", [3], [4])], [4], preserve_intermediates=True)
    assert result.owners == [0, 1, 2, 3, 4]
    assert result.arena_size == 5 * 64


def test_inputs_are_preserved_unless_told_otherwise() -> None:
    chain: list[Op] = [("RELU", [0], [1]), ("RELU", [1], [2]), ("RELU", [2], [3])]
    assert plan(chain, [3]).arena_size == 3 * 64
    assert plan(chain, [3], preserve_inputs=False).arena_size == 2 * 64


def test_variables_have_their_own_arena_and_dynamic_tensors_have_no_offset() -> None:
    kinds = {1: Placement.PERSISTENT, 2: Placement.DYNAMIC, 5: Placement.PERSISTENT}
    operators: list[Op] = [("RELU", [0, 1, 5], [2]), ("RELU", [2], [3]), ("RELU", [3], [4])]
    result = plan(operators, [4], placements=kinds, variables=[1, 5])
    assert result.offsets == [0, 0, None, 64, 128, 64]
    assert (result.arena_size, result.persistent_arena_size) == (192, 128)


def test_an_empty_tensor_has_offset_zero() -> None:
    assert plan([("RELU", [0], [1]), ("RELU", [1], [2])], [2], sizes={1: 0}).offsets[1] == 0


def test_any_planner_plans_a_graph() -> None:
    model = max(MODELS, key=lambda model: len(model["tensors"]))
    graph = graph_of(model)
    sizes = {name: plan_graph(graph, planner=name).arena_size for name in allocators.planners()}
    assert min(sizes.values()) == sizes["exact"] >= plan_graph(graph).lower_bound
    assert max(sizes.values()) == sizes["no_reuse"]


def test_an_unknown_tensor_is_an_error() -> None:
    graph = Graph([Tensor(1)], [Operator([0], [1])], [0], [1])
    with pytest.raises(allocators.SpecError, match="tensor 1 does not exist"):
        plan_graph(graph)
