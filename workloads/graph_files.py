# SPDX-License-Identifier: Apache-2.0
"""Operator graphs on disk: TensorFlow Lite models, and graphs as JSON.

A JSON graph is an object; tensors are given by their index, and all keys but the first two may be
left out:

    {"tensors": [{"bytes": 4096, "name": "x", "placement": "arena"}, {"bytes": 4096}],
     "operators": [{"kind": "SOFTMAX", "inputs": [0], "outputs": [1], "temporaries": []}],
     "inputs": [0], "outputs": [1], "variables": []}
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, BinaryIO

from allocbench.workloads.graphs import OperatorGraph, OperatorNode, TensorNode
from allocbench.workloads.importers.tflite import is_tflite, read_tflite
from allocbench.workloads.input_files import open_input
from allocbench.workloads.trace import TraceError


def is_graph(head: bytes) -> bool:
    """Whether a file with this beginning holds an operator graph rather than a trace."""
    return is_tflite(head) or _is_json_graph(head)


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
    return read_tflite(data) if is_tflite(data) else _from_json(data)


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
                _indices(operator, "inputs"),
                _indices(operator, "outputs"),
                _indices(operator, "temporaries"),
            )
            for operator in _get(graph, "operators", list)
        ],
        *(_indices(graph, name) for name in ("inputs", "outputs", "variables")),
    )


def _indices(entry: Any, name: str) -> list[int]:
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
