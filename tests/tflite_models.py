# SPDX-License-Identifier: Apache-2.0
"""Small TensorFlow Lite models, written with FlatBuffers."""

from pathlib import Path
from typing import Any

import pytest


def tflite_file(path: Path) -> Path:
    """A model of an ADD of its input and a constant of 10 float32, and a SOFTMAX of the sum."""
    flatbuffers: Any = pytest.importorskip("flatbuffers")
    tflite: Any = pytest.importorskip("tflite")
    builder = flatbuffers.Builder(1024)

    def vector(start: Any, values: list[int], prepend: Any) -> int:
        start(builder, len(values))
        for value in reversed(values):
            prepend(value)
        return int(builder.EndVector())

    names = [builder.CreateString(name) for name in ("x", "bias", "sum", "y", "state")]
    data = builder.CreateByteVector(bytes(40))
    buffers = []
    for filled in (False, True):
        tflite.BufferStart(builder)
        if filled:
            tflite.BufferAddData(builder, data)
        buffers.append(tflite.BufferEnd(builder))
    tensors = []
    for n, name in enumerate(names):
        shape = vector(tflite.TensorStartShapeVector, [1, 10], builder.PrependInt32)
        tflite.TensorStart(builder)
        tflite.TensorAddShape(builder, shape)
        tflite.TensorAddType(builder, tflite.TensorType.FLOAT32)
        tflite.TensorAddBuffer(builder, 1 if n == 1 else 0)
        tflite.TensorAddName(builder, name)
        tflite.TensorAddIsVariable(builder, n == 4)
        tensors.append(tflite.TensorEnd(builder))
    operators = []
    for code_index, (inputs, outputs) in enumerate((([0, 1], [2]), ([2, -1], [3]))):
        ins = vector(tflite.OperatorStartInputsVector, inputs, builder.PrependInt32)
        outs = vector(tflite.OperatorStartOutputsVector, outputs, builder.PrependInt32)
        tflite.OperatorStart(builder)
        tflite.OperatorAddOpcodeIndex(builder, code_index)
        tflite.OperatorAddInputs(builder, ins)
        tflite.OperatorAddOutputs(builder, outs)
        operators.append(tflite.OperatorEnd(builder))
    codes = []
    for kind in (tflite.BuiltinOperator.ADD, tflite.BuiltinOperator.SOFTMAX):
        tflite.OperatorCodeStart(builder)
        tflite.OperatorCodeAddDeprecatedBuiltinCode(builder, kind)
        codes.append(tflite.OperatorCodeEnd(builder))

    def tables(start: Any, offsets: list[int]) -> int:
        return vector(start, offsets, builder.PrependUOffsetTRelative)

    all_tensors = tables(tflite.SubGraphStartTensorsVector, tensors)
    all_operators = tables(tflite.SubGraphStartOperatorsVector, operators)
    first = vector(tflite.SubGraphStartInputsVector, [0], builder.PrependInt32)
    last = vector(tflite.SubGraphStartOutputsVector, [3], builder.PrependInt32)
    tflite.SubGraphStart(builder)
    tflite.SubGraphAddTensors(builder, all_tensors)
    tflite.SubGraphAddOperators(builder, all_operators)
    tflite.SubGraphAddInputs(builder, first)
    tflite.SubGraphAddOutputs(builder, last)
    graphs = tables(tflite.ModelStartSubgraphsVector, [tflite.SubGraphEnd(builder)])
    all_codes = tables(tflite.ModelStartOperatorCodesVector, codes)
    all_buffers = tables(tflite.ModelStartBuffersVector, buffers)
    tflite.ModelStart(builder)
    tflite.ModelAddVersion(builder, 3)
    tflite.ModelAddOperatorCodes(builder, all_codes)
    tflite.ModelAddSubgraphs(builder, graphs)
    tflite.ModelAddBuffers(builder, all_buffers)
    builder.Finish(tflite.ModelEnd(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path
