# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite models (`.tflite`) as operator graphs: the first subgraph of the file.

The schema is that of TensorFlow Lite (`schema.fbs`). A tensor with data in the file is a constant,
a variable is persistent, and a tensor of strings, resources or variants is dynamic. Shapes are
those in the file: a model whose inputs are resized needs another plan. The file does not name the
temporaries that kernels add, such as the columns of a convolution, so the graph has none.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from allocbench.base.errors import needs_extra
from allocbench.workloads.graphs import OperatorGraph, OperatorNode, Placement, TensorNode
from allocbench.workloads.trace import TraceError

IDENTIFIER = b"TFL3"  # at byte 4 of a file
_NO_DATA = 0  # the buffer of tensors without data in the file
_LARGE_CONSTANT = 1  # a buffer stored behind the model has an offset above this value
_BITS = {
    "FLOAT32": 32,
    "FLOAT16": 16,
    "BFLOAT16": 16,
    "INT32": 32,
    "UINT8": 8,
    "INT64": 64,
    "BOOL": 8,
    "INT16": 16,
    "COMPLEX64": 64,
    "INT8": 8,
    "FLOAT64": 64,
    "COMPLEX128": 128,
    "UINT64": 64,
    "UINT32": 32,
    "UINT16": 16,
    "INT4": 4,
}


def is_tflite(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a TensorFlow Lite model."""
    return head[4:8] == IDENTIFIER


def read_tflite(data: bytes) -> OperatorGraph:
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
