# SPDX-License-Identifier: Apache-2.0
"""Operator graphs: the operators of a model in execution order, and the tensors between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from allocbench.workloads.trace import TraceError

Placement = Literal["arena", "persistent", "dynamic", "none"]
"""Where a tensor is: in the shared arena while it is alive, in an arena of tensors that never die,
allocated while the model runs, or nowhere in the planner's memory (a constant)."""
OPTIONAL = -1
"""Stands for an optional tensor that an operator does not use."""
_MOST_BYTES = 2**62


@dataclass(frozen=True)
class TensorNode:
    """A tensor of `bytes` bytes."""

    bytes: int
    placement: Placement = "arena"
    name: str = ""


@dataclass(frozen=True)
class OperatorNode:
    """An operator; tensors are given by their index. Temporaries live while it runs.

    kind: the operator's name in TensorFlow Lite, such as "ADD" or "CONV_2D".
    """

    kind: str
    inputs: Sequence[int]
    outputs: Sequence[int]
    temporaries: Sequence[int] = ()


@dataclass(frozen=True)
class OperatorGraph:
    """A graph whose operators are in execution order; inputs, outputs and variables are tensors.

    Raises TraceError if it has no operators, if a tensor does not exist, or for an invalid size or
    placement.
    """

    tensors: Sequence[TensorNode]
    operators: Sequence[OperatorNode]
    inputs: Sequence[int] = field(default_factory=list)
    outputs: Sequence[int] = field(default_factory=list)
    variables: Sequence[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.operators:
            raise TraceError("holds no operators")
        for n, tensor in enumerate(self.tensors):
            if not 0 <= tensor.bytes <= _MOST_BYTES:
                raise TraceError(f"tensor {n} has {tensor.bytes:,} bytes")
            if tensor.placement not in get_args(Placement):
                valid = ", ".join(get_args(Placement))
                raise TraceError(f"tensor {n}: placement '{tensor.placement}'; valid: {valid}")
        for n, operator in enumerate(self.operators):
            self._check(f"operator {n} ({operator.kind})", operator.inputs, optional=True)
            self._check(f"operator {n} ({operator.kind})", operator.outputs)
            self._check(f"operator {n} ({operator.kind})", operator.temporaries)
        self._check("the inputs", self.inputs)
        self._check("the outputs", self.outputs)
        self._check("the variables", self.variables)

    def _check(self, where: str, tensors: Sequence[int], *, optional: bool = False) -> None:
        least = OPTIONAL if optional else 0
        for tensor in tensors:
            if not least <= tensor < len(self.tensors):
                raise TraceError(
                    f"{where}: tensor {tensor} does not exist; there are {len(self.tensors):,}"
                )
