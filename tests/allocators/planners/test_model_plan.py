# SPDX-License-Identifier: Apache-2.0
"""`allocbench plan` of a model: TensorFlow Lite's own offsets, .tflite files, damaged files."""

import csv
import gzip
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from allocbench.cli import app
from allocbench.workloads import TraceError, read_graph
from tests.tflite_models import tflite_file

DATA = Path(__file__).parents[2] / "data/tflite"
MODELS: list[dict[str, Any]] = json.loads(gzip.decompress((DATA / "models.json.gz").read_bytes()))


def graph_file(folder: Path, model: dict[str, Any]) -> Path:
    """A model of the reference data as a JSON graph."""
    graph = {
        "tensors": [
            {"bytes": size, "placement": "none" if offset is None else "arena", "name": f"t{n}"}
            for n, (size, offset, _) in enumerate(model["tensors"])
        ],
        "operators": [
            {"kind": kind, "inputs": inputs, "outputs": outputs, "temporaries": temporaries}
            for kind, inputs, outputs, temporaries in model["operators"]
        ],
        "inputs": model["inputs"],
        "outputs": model["outputs"],
    }
    path = folder / "graph.json"
    path.write_text(json.dumps(graph))
    return path


def planned(path: Path, *options: str) -> tuple[dict[str, Any], list[dict[str, str]]]:
    """The numbers and the rows of the plan that the command makes."""
    numbers, rows = path.with_suffix(".numbers"), path.with_suffix(".plan")
    done = CliRunner().invoke(
        app, ["plan", str(path), "--json", str(numbers), "-o", str(rows), *options]
    )
    assert done.exit_code == 0, done.output
    with rows.open(newline="") as file:
        return json.loads(numbers.read_text()), list(csv.DictReader(file))


@pytest.mark.parametrize("model", MODELS[::6], ids=[model["name"] for model in MODELS[::6]])
def test_the_plan_is_that_of_tensorflow_lite(tmp_path: Path, model: dict[str, Any]) -> None:
    numbers, rows = planned(graph_file(tmp_path, model), "--planner", "greedy_by_size")
    assert numbers["height"] == numbers["tflite_height"] == model["arena_size"]
    assert numbers["lower_bound"] <= numbers["height"]
    offsets = {int(row["tensor"]): int(row["offset"]) for row in rows}
    assert offsets == {n: t[1] for n, t in enumerate(model["tensors"]) if t[1] is not None}


def test_the_exact_planner_is_never_above_tensorflow_lite(tmp_path: Path) -> None:
    numbers, _ = planned(graph_file(tmp_path, MODELS[2]), "--time-limit", "0.5")
    assert numbers["lower_bound"] <= numbers["height"] <= numbers["tflite_height"]


def test_a_tflite_file_is_read(tmp_path: Path) -> None:
    path = tflite_file(tmp_path / "model.tflite")
    graph = read_graph(path)
    assert [(o.kind, list(o.inputs), list(o.outputs)) for o in graph.operators] == [
        ("ADD", [0, 1], [2]),
        ("SOFTMAX", [2, -1], [3]),
    ]
    assert [(t.name, t.bytes, t.placement) for t in graph.tensors] == [
        ("x", 40, "arena"),
        ("bias", 40, "none"),
        ("sum", 40, "arena"),
        ("y", 40, "arena"),
        ("state", 40, "persistent"),
    ]
    numbers, rows = planned(path)
    assert (numbers["persistent"], numbers["constant"]) == (40, 40)
    assert {row["name"] for row in rows} == {"x", "sum", "y", "state"}


def test_a_damaged_tflite_file_is_refused_in_one_line(tmp_path: Path) -> None:
    whole = tflite_file(tmp_path / "model.tflite").read_bytes()
    rng = random.Random(0)
    path = tmp_path / "damaged.tflite"
    messages = []
    for _ in range(300):
        data = bytearray(whole[: rng.choice([len(whole), rng.randrange(8, len(whole))])])
        for _ in range(rng.randrange(1, 6)):
            data[rng.randrange(8, len(data))] = rng.randrange(256)
        path.write_bytes(data)
        try:
            read_graph(path)
        except TraceError as error:
            messages.append(str(error))
    assert len(messages) > 100
    assert all(str(path) in message and "\n" not in message for message in messages)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"tensors": 3}', "'tensors' must be a list"),
        ('{"tensors": [], "operators": []}', "holds no operators"),
        ('{"tensors": [{}], "operators": []}', "'bytes' must be a whole number"),
        ('{"tensors": [{"bytes": -1}], "operators": [{}]}', "tensor 0 has -1 bytes"),
        (
            '{"tensors": [{"bytes": 1}], "operators": [{"kind": "ADD", "inputs": [7]}]}',
            "operator 0 (ADD): tensor 7 does not exist; there are 1",
        ),
        (
            '{"tensors": [{"bytes": 1, "placement": "moon"}], "operators": [{}]}',
            "tensor 0: placement 'moon'; valid: arena, persistent, dynamic, none",
        ),
        ('{"tensors": [{"bytes": 1}], "operators": [{"inputs": ["x"]}]}', "whole numbers"),
        ('{"tensors": [', "Expecting value"),
    ],
)
def test_a_wrong_json_graph_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "graph.json"
    path.write_text(text)
    done = CliRunner().invoke(app, ["plan", str(path)])
    assert done.exit_code == 2
    assert message in done.output
    assert done.output.count("\n") == 1


@pytest.mark.parametrize("zipped", [False, True])
def test_a_graph_comes_through_a_pipe(zipped: bool) -> None:
    text = b'{"tensors": [{"bytes": 64}], "operators": [{"outputs": [0]}]}'
    reader, writer = os.pipe()
    os.write(writer, gzip.compress(text) if zipped else text)
    os.close(writer)
    done = CliRunner().invoke(app, ["plan", f"/dev/fd/{reader}", "--json", "-"])
    os.close(reader)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["height"] == 64
