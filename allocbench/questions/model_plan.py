# SPDX-License-Identifier: Apache-2.0
"""A plan for the tensors of a model, compared with the plan that TensorFlow Lite makes."""

from __future__ import annotations

import csv
import io
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

from allocbench import allocators
from allocbench.allocators import Graph, GraphPlan, Operator, Placement, Tensor
from allocbench.allocators.planning import TIME_LIMIT, Report

if TYPE_CHECKING:
    from allocbench.workloads import OperatorGraph

TFLITE = "greedy_by_size"
"""The planner of TensorFlow Lite."""
ALIGNMENT = 64
"""Bytes, as in TensorFlow Lite."""


@dataclass(frozen=True)
class ModelPlan:
    """Offsets for the tensors of a graph.

    tflite_height: bytes of the arena that TensorFlow Lite needs for the same graph.
    seconds: the time that the planner took.
    """

    planner: str
    graph: OperatorGraph
    plan: GraphPlan
    tflite_height: int
    seconds: float

    @property
    def numbers(self) -> dict[str, Any]:
        """The plan in numbers; sizes in bytes."""
        constant = sum(t.bytes for t in self.graph.tensors if t.placement == "none")
        return {
            "planner": self.planner,
            "operators": len(self.graph.operators),
            "tensors": len(self.graph.tensors),
            "height": self.plan.arena_size,
            "tflite_height": self.tflite_height,
            "lower_bound": self.plan.lower_bound,
            "optimal": self.plan.arena_size == self.plan.lower_bound,
            "persistent": self.plan.persistent_arena_size,
            "constant": constant,
            "seconds": self.seconds,
        }

    def write(self, sink: BinaryIO) -> None:
        """Write CSV with a row for each tensor that the plan gives an offset.

        Columns: tensor (its index), name, placement, bytes, offset, owner (the tensor whose memory
        it uses: itself, unless an operator works in place).
        """
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(("tensor", "name", "placement", "bytes", "offset", "owner"))
        places = zip(self.graph.tensors, self.plan.offsets, self.plan.owners, strict=True)
        for n, (tensor, offset, owner) in enumerate(places):
            if offset is not None:
                rows.writerow((n, tensor.name, tensor.placement, tensor.bytes, offset, owner))
        sink.write(text.getvalue().encode())


def plan_model(
    graph: OperatorGraph,
    planner: str,
    *,
    alignment: int = ALIGNMENT,
    time_limit: float = TIME_LIMIT,
    report: Report | None = None,
) -> ModelPlan:
    """Plan the arena of a model; raises SpecError as `allocators.plan_graph` does."""
    native = Graph(
        [Tensor(t.bytes, Placement[t.placement.upper()]) for t in graph.tensors],
        [Operator(o.inputs, o.outputs, o.temporaries, o.kind) for o in graph.operators],
        graph.inputs,
        graph.outputs,
        graph.variables,
    )
    began = time.perf_counter()
    plan = allocators.plan_graph(
        native, planner=planner, alignment=alignment, time_limit=time_limit, report=report
    )
    seconds = time.perf_counter() - began
    tflite = allocators.plan_graph(native, planner=TFLITE, alignment=alignment)
    return ModelPlan(planner, graph, plan, tflite.arena_size, seconds)
