# SPDX-License-Identifier: Apache-2.0
"""ArenaPlanner: the graphs of TFLite's own tests, with its offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from allocbench import allocators
from allocbench.allocators import ArenaPlanner, Graph, Operator, Placement, Tensor

OPTIONAL = -1
Op = tuple[list[int], list[int], list[int]]  # in, out, temporaries


def size_of(tensor: int) -> int:
    return 3 * (tensor + 1)


class Planned:
    """A planner over tensors of 3, 6, 9, ... bytes, aligned at 4."""

    def __init__(
        self,
        inputs: list[int],
        operators: list[Op],
        outputs: list[int],
        placements: Mapping[int, Placement] | None = None,
        variables: Iterable[int] = (),
        **options: bool,
    ) -> None:
        count = 1 + max([*inputs, *outputs, *(t for op in operators for part in op for t in part)])
        tensors = [
            Tensor(size_of(t), (placements or {}).get(t, Placement.ARENA)) for t in range(count)
        ]
        operators_ = [Operator(*op) for op in operators]
        graph = Graph(tensors, operators_, inputs, outputs, list(variables))
        self.device = allocators.SimulatedDevice("1GiB")
        self.planner = ArenaPlanner(self.device, graph, alignment=4, **options)
        self.last = len(operators) - 1

    def run(self) -> Planned:
        self.planner.execute(0, self.last)
        return self

    def offset(self, tensor: int) -> int | None:
        return self.planner.offset(tensor)

    def after(self, tensor: int) -> int:
        """The aligned end of a tensor."""
        offset = self.offset(tensor)
        assert offset is not None
        return (offset + size_of(tensor) + 3) // 4 * 4


TWO_OUTPUTS: list[Op] = [([0, 1], [2], []), ([2, 0], [4, 5], []), ([4, 5], [3], [])]
TEMPORARY: list[Op] = [([0, 1], [2], []), ([2, 0], [4], [5]), ([4], [3], [])]
WITH_OPTIONAL: list[Op] = [([0, 1], [2], []), ([2, 0], [4], [5]), ([4, OPTIONAL], [3], [])]


OPTIONAL_INPUT: list[Op] = [*TWO_OUTPUTS[:2], ([4, OPTIONAL, 5], [3], [])]
PERSISTENT = {1: Placement.PERSISTENT}
AFTER = {2: 1, 5: 2, 4: 5}  # in the order of the temporary's graph
SIMPLE: dict[str, tuple[Planned, dict[int, int]]] = {
    # each tensor lies right after another one; those that are not named lie at 0
    # +0 +1 +2 +4 +5 -2 +3 -4 -5
    "inputs preserved": (
        Planned([0, 1], TWO_OUTPUTS, [3], preserve_inputs=True),
        {1: 0, 2: 1, 4: 2, 5: 4, 3: 1},
    ),
    # +0 +1 +2 -1 +4 +5 -2 -0 +3 -4 -5
    "optionals": (Planned([0, OPTIONAL, 1], OPTIONAL_INPUT, [3]), {1: 0, 2: 1, 4: 2, 5: 4}),
    # +0 +1 +2 -1 +5 +4 -2 -0 -5 +3 -4
    "persistent": (
        Planned([0, OPTIONAL, 1], WITH_OPTIONAL, [3], PERSISTENT, variables=[1]),
        AFTER | {2: 0},
    ),
    "temporary": (Planned([0, 1], TEMPORARY, [3]), AFTER | {1: 0}),
    # +0 +2 +5 +4 -2 -0 -5 +3 -4
    "dynamic": (Planned([0, 1], TEMPORARY, [3], {1: Placement.DYNAMIC}), AFTER | {2: 0}),
    "none": (Planned([0, 1], TEMPORARY, [3], {1: Placement.NONE}), AFTER | {2: 0}),
}


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_graphs_of_tflite(name: str) -> None:
    planned, after = SIMPLE[name]
    plan = planned.run()
    outside = name in ("dynamic", "none")
    for tensor in range(6):
        expected = plan.after(after[tensor]) if tensor in after else 0
        assert plan.offset(tensor) == (None if outside and tensor == 1 else expected), tensor
    if name == "persistent":
        assert plan.planner.address(0) != plan.planner.address(1)
        assert plan.planner.persistent_arena_size == size_of(1)
    assert not outside or plan.planner.address(1) == 0


def test_with_intermediates_preserved_only_temporaries_die() -> None:
    plan = Planned([0, 1], TEMPORARY, [3], preserve_intermediates=True).run()
    # +0 +1 +2 +5 +4 -5 +3: tensor 3 needs 12 bytes, the gap of the temporary has 20
    assert plan.offset(4) == plan.after(5)
    assert plan.offset(3) == plan.offset(5) == plan.after(2)


LARGER: list[Op] = [
    ([0, 1], [2, 3], []),
    ([2, 0], [4, 5], [6]),
    ([1, OPTIONAL], [7], []),
    ([7, 3], [8], [9]),
    ([4, 5, 8], [10], []),
]


def test_one_call_or_several_give_the_same_offsets() -> None:
    whole, parts = Planned([0, 1], LARGER, [10]).run(), Planned([0, 1], LARGER, [10])
    for first, last in ((0, 1), (2, 2), (3, 4)):
        parts.planner.execute(first, last)
    assert [whole.offset(t) for t in range(11)] == [parts.offset(t) for t in range(11)]
    assert whole.planner.arena_size == parts.planner.arena_size


def test_a_size_can_be_set_between_calls() -> None:
    plan = Planned([0, 1], TEMPORARY, [3])
    plan.planner.execute(0, 0)
    with pytest.raises(allocators.SpecError, match="already has an offset"):
        plan.planner.set_bytes(2, 50)
    plan.planner.set_bytes(4, 1000)
    plan.planner.set_bytes(3, 0)
    plan.planner.execute(1, 2)
    assert plan.offset(5) == plan.after(2)
    assert plan.offset(4) == plan.after(5)
    assert plan.planner.arena_size == plan.after(5) + 1000
    assert plan.planner.address(3) == 0


def test_the_arenas_are_held_from_the_device() -> None:
    plan = Planned([0, 1], TEMPORARY, [3], {1: Placement.PERSISTENT}, variables=[1]).run()
    arena, persistent = plan.planner.arena_size, plan.planner.persistent_arena_size
    rounded = [(size + 3) // 4 * 4 for size in (arena, persistent)]
    assert plan.device.reserved == sum(rounded)
    base = plan.planner.address(0)
    assert [plan.planner.address(t) - base for t in (2, 4)] == [plan.offset(2), plan.offset(4)]


def test_a_graph_that_does_not_fit_is_out_of_memory() -> None:
    graph = Graph([Tensor(1000), Tensor(1000)], [Operator([0], [1])], [0], [1])
    planner = ArenaPlanner(allocators.SimulatedDevice(1999), graph)
    with pytest.raises(allocators.OutOfMemory):
        planner.execute(0, 0)


@pytest.mark.parametrize(("first", "last"), [(1, 1), (0, -1), (-1, 0), (3, 3)])
def test_operators_run_in_order_and_once(first: int, last: int) -> None:
    plan = Planned([0, 1], TEMPORARY, [3])
    with pytest.raises(allocators.SpecError, match="0 of 3 operators have been executed"):
        plan.planner.execute(first, last)
    plan.run()
    with pytest.raises(allocators.SpecError, match="3 of 3 operators have been executed"):
        plan.run()


@pytest.mark.parametrize("tensor", [-2, 2])
def test_an_unknown_tensor_is_an_error(tensor: int) -> None:
    device = allocators.SimulatedDevice("1GiB")
    good = Operator([0], [1])
    for graph in (
        Graph([Tensor(1), Tensor(1)], [good], [tensor], [1]),
        Graph([Tensor(1), Tensor(1)], [good], [0], [tensor]),
        Graph([Tensor(1), Tensor(1)], [Operator([tensor], [1])], [0], [1]),
        Graph([Tensor(1), Tensor(1)], [Operator([0], [tensor])], [0], [1]),
        Graph([Tensor(1), Tensor(1)], [Operator([0], [1], [tensor])], [0], [1]),
        Graph([Tensor(1), Tensor(1)], [good], [0], [1], [tensor]),
    ):
        with pytest.raises(allocators.SpecError, match=f"tensor {tensor} does not exist"):
            ArenaPlanner(device, graph)
