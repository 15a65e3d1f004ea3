# SPDX-License-Identifier: Apache-2.0
"""What the hook for modules notes of their outputs, in a program that uses the CPU."""

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

PROGRAM = """
import json
from dataclasses import dataclass
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from allocbench.workloads import module_hook

module_hook.after_torch(torch)
called = []

@dataclass
class Output:
    logits: torch.Tensor
    hidden: dict

class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), options=None):
        called.append(function)
        return super().__torch_function__(function, types, args, options or {})

class Returns(nn.Module):
    def __init__(self, *outputs):
        super().__init__()
        self.outputs = list(outputs)
    def forward(self):
        return self.outputs.pop(0)

def tensor(*shape):
    return torch.zeros(shape)

endless = []
endless.append(endless)
loud = tensor(2).as_subclass(Loud)
model = nn.ModuleDict({
    "later": Returns(tensor(1), tensor(2)),
    "pair": Returns((tensor(1, 2), [tensor(3)])),
    "many": Returns([tensor(1)] * 1_000),
    "named": Returns(Output(tensor(4, 5), {"hidden": (None, tensor())})),
    "none": Returns(None),
    "endless": Returns(endless),
    "loud": Returns(loud),
    "scripted": torch.jit.script(nn.Linear(3, 2)),
    "compiled": nn.Linear(3, 2),
    "faked": nn.Identity(),
    "traced": nn.Linear(3, 2),
    "a;\\ud800<b>": Returns(tensor(6)),
})
model.forward = lambda: [one() for one in model.children() if isinstance(one, Returns)]
model()
model["later"]()
assert not called, called
x = tensor(7, 3)
model["scripted"](x)
compiled = torch.compile(model["compiled"], backend="eager")
assert compiled(x).shape == (7, 2)
with FakeTensorMode() as mode:
    model["faked"](mode.from_tensor(x))
plain = str(torch.jit.trace(model["traced"], x).graph)
print(json.dumps([module_hook.shapes(), plain.count("aten::size")]))
"""


def test_the_shapes_of_outputs_whatever_they_are() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shapes, reads = json.loads(done.stdout)
    assert shapes.pop("ModuleDict").endswith(", ...")
    assert shapes.pop("Linear") == "[7, 2]"  # compiled, so it is a model of its own
    assert shapes == {
        "later": "[1]",
        "pair": "[1, 2], [3]",
        "many": "[1], [1], [1], [1], ...",
        "named": "[4, 5], []",
        "loud": "[2]",
        "scripted": "[7, 2]",
        "faked": "[7, 3]",
        "a;\ud800<b>": "[6]",
    }
    assert reads == 0
