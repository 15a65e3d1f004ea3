# SPDX-License-Identifier: Apache-2.0
"""Operator graphs: the operators of a model in execution order, and the tensors between them.

They are read from TensorFlow Lite models, and from JSON: an object, in which tensors are given by
their index, and all keys but the first two may be left out:

    {"tensors": [{"bytes": 4096, "name": "x", "placement": "arena"}, {"bytes": 4096}],
     "operators": [{"kind": "SOFTMAX", "inputs": [0], "outputs": [1], "temporaries": []}],
     "inputs": [0], "outputs": [1], "variables": []}

Of a TensorFlow Lite model (`.tflite`, schema `schema.fbs`), the first subgraph is read. A tensor
with data in the file is a constant, a variable is persistent, and a tensor of strings, resources or
variants is dynamic. Shapes are those in the file: a model whose inputs are resized needs another
plan. The file does not name the temporaries that kernels add, such as the columns of a convolution,
so the graph has none.
"""

import json
import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args

from allocbench.base.errors import needs_extra
from allocbench.workloads.input_files import open_input
from allocbench.workloads.trace import TraceError

Placement = Literal["arena", "persistent", "dynamic", "none"]
"""Where a tensor is: in the shared arena while it is alive, in an arena of tensors that never die,
allocated while the model runs, or nowhere in the planner's memory (a constant)."""
OPTIONAL = -1
"""Stands for an optional tensor that an operator does not use."""
_MOST_BYTES = 2**62
_IDENTIFIER = b"TFL3"  # at byte 4 of a file
_NO_DATA = 0  # the buffer of tensors without data in the file
_LARGE_CONSTANT = 1  # a buffer stored behind the model has an offset above this value
_TYPES = """
FLOAT64 FLOAT32 FLOAT16 BFLOAT16 COMPLEX128 COMPLEX64 INT64 INT32 INT16 INT8 INT4 UINT64 UINT32
UINT16 UINT8
"""
_BITS = {"BOOL": 8} | {name: int(re.sub("[A-Z]", "", name)) for name in _TYPES.split()}


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
            where = f"operator {n} ({operator.kind})"
            self._check(where, operator.inputs, least=OPTIONAL)
            self._check(where, [*operator.outputs, *operator.temporaries])
        for name in ("inputs", "outputs", "variables"):
            self._check(f"the {name}", getattr(self, name))

    def _check(self, where: str, tensors: Sequence[int], least: int = 0) -> None:
        for tensor in tensors:
            if not least <= tensor < len(self.tensors):
                raise TraceError(
                    f"{where}: tensor {tensor} does not exist; there are {len(self.tensors):,}"
                )


def is_graph(head: bytes) -> bool:
    """Whether a file with this beginning holds an operator graph rather than a trace."""
    return _is_tflite(head) or _is_json_graph(head)


def read_graph(path: str | Path) -> OperatorGraph:
    """Read an operator graph from a file as `open_input` takes it.

    Raises TraceError in one line that names the file and what is wrong with it, and
    ModuleNotFoundError naming the extra that a TensorFlow Lite model needs.
    """
    with open_input(path) as (file, _):
        return parse_graph(file)


def parse_graph(file: BinaryIO) -> OperatorGraph:
    """Read an open operator graph; raises as `read_graph`, without the name of the file."""
    data = file.read()
    return _from_tflite(data) if _is_tflite(data) else _from_json(data)


def _is_json_graph(head: bytes) -> bool:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return text.startswith(b"{") and text[1:].lstrip()[:9] in (b'"tensors"', b'"operator')


def _from_json(data: bytes) -> OperatorGraph:
    graph = json.loads(data)
    if not isinstance(graph, dict):
        raise TraceError("is not a JSON object with tensors and operators")
    return OperatorGraph(
        [
            TensorNode(
                _get(tensor, "bytes", int),
                _get(tensor, "placement", str, "arena"),
                _get(tensor, "name", str, ""),
            )
            for tensor in _get(graph, "tensors", list)
        ],
        [
            OperatorNode(
                _get(operator, "kind", str, ""),
                _numbers(operator, "inputs"),
                _numbers(operator, "outputs"),
                _numbers(operator, "temporaries"),
            )
            for operator in _get(graph, "operators", list)
        ],
        *(_numbers(graph, name) for name in ("inputs", "outputs", "variables")),
    )


def _numbers(entry: Any, name: str) -> list[int]:
    indices = _get(entry, name, list, [])
    if not all(type(index) is int for index in indices):
        raise TraceError(f"{name}: {indices} is not a list of whole numbers")
    return list(indices)


def _get(entry: Any, name: str, kind: type, default: Any = None) -> Any:
    value = entry.get(name, default) if isinstance(entry, dict) else None
    if type(value) is not kind:
        what = {int: "a whole number", str: "text", list: "a list"}[kind]
        raise TraceError(f"{str(entry)[:60]}: '{name}' must be {what}")
    return value


def _is_tflite(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a TensorFlow Lite model."""
    return head[4:8] == _IDENTIFIER


def _from_tflite(data: bytes) -> OperatorGraph:
    """Read the first subgraph of a model.

    Raises TraceError for a damaged file and for a model without operators, ModuleNotFoundError
    naming the extra to install.
    """
    with needs_extra("tflite"):
        import tflite
    try:
        return _graph(tflite, tflite.Model.GetRootAs(data, 0), len(data))
    except (struct.error, IndexError, ValueError, TypeError, OverflowError) as error:
        raise TraceError(f"is not a valid TensorFlow Lite model: {error}") from error


def _graph(tflite: Any, model: Any, size: int) -> OperatorGraph:
    if not _count(model.SubgraphsLength(), size):
        raise TraceError("holds no graph")
    graph = model.Subgraphs(0)
    types = {value: name for name, value in vars(tflite.TensorType).items() if name[0] != "_"}
    kinds = {value: name for name, value in vars(tflite.BuiltinOperator).items() if name[0] != "_"}
    tensors = [
        _tensor(model, graph.Tensors(n), types, size)
        for n in range(_count(graph.TensorsLength(), size))
    ]
    operators = [
        _operator(model, graph.Operators(n), kinds, size)
        for n in range(_count(graph.OperatorsLength(), size))
    ]
    return OperatorGraph(
        tensors,
        operators,
        inputs=_indices(graph.Inputs, graph.InputsLength(), size),
        outputs=_indices(graph.Outputs, graph.OutputsLength(), size),
        variables=[n for n, tensor in enumerate(tensors) if tensor.placement == "persistent"],
    )


def _tensor(model: Any, tensor: Any, types: dict[int, str], size: int) -> TensorNode:
    name = (tensor.Name() or b"").decode("utf-8", "replace")
    kind = types.get(tensor.Type(), str(tensor.Type()))
    shape = _indices(tensor.Shape, tensor.ShapeLength(), size)
    if any(dimension < 0 for dimension in shape):
        raise TraceError(f"tensor '{name}' has the shape {shape}")
    placement: Placement = "arena"
    if _is_constant(model, tensor.Buffer()):
        placement = "none"
    elif kind not in _BITS:
        placement = "dynamic"
    elif tensor.IsVariable():
        placement = "persistent"
    return TensorNode((math.prod(shape) * _BITS.get(kind, 0) + 7) // 8, placement, name)


def _is_constant(model: Any, number: int) -> bool:
    if number == _NO_DATA or number >= model.BuffersLength():
        return False
    buffer = model.Buffers(number)
    return bool(buffer.DataLength() > 0 or buffer.Offset() > _LARGE_CONSTANT)


def _operator(model: Any, operator: Any, kinds: dict[int, str], size: int) -> OperatorNode:
    number = operator.OpcodeIndex()
    if number >= model.OperatorCodesLength():
        raise TraceError(f"is not a valid TensorFlow Lite model: no operator code {number:,}")
    code = model.OperatorCodes(number)
    # Old files have the code in a field of one byte, new ones in both or in the larger one.
    kind = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    return OperatorNode(
        kinds.get(kind, str(kind)),
        _indices(operator.Inputs, operator.InputsLength(), size),
        _indices(operator.Outputs, operator.OutputsLength(), size),
    )


def _indices(entry: Any, length: int, size: int) -> list[int]:
    return [int(entry(n)) for n in range(_count(length, size))]


def _count(length: int, size: int) -> int:
    """The length of a vector of at least four bytes an entry, which the file must have."""
    if length * 4 > size:
        raise TraceError(f"is not a valid TensorFlow Lite model: {length:,} entries in a vector")
    return length
