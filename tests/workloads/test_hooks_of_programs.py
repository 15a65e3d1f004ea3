# SPDX-License-Identifier: Apache-2.0
"""The hooks for edits, modules and steps, in this process: what they change, note and leave."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from allocbench.workloads import edits_hook, module_hook, recording_hook
from tests.workloads.test_recording import Machine

torch: Any = pytest.importorskip("torch")
fake_tensor: Any = pytest.importorskip("torch._subclasses.fake_tensor")

Edited = Callable[..., None]
CHANGED = [
    (torch.optim.Optimizer, "__init__ add_param_group zero_grad"),
    (torch.optim.Adam, "step"),
    (torch.optim.AdamW, "step"),
    (torch.optim.SGD, "step"),
    (torch.optim.Adafactor, "step"),
    (torch.optim, "Adam AdamW"),
    (torch.nn.Module, "zero_grad __call__"),
    (torch.nn.parallel.DistributedDataParallel, "__init__"),
    (torch.cuda, "empty_cache"),
    (torch.autograd.graph, "save_on_cpu"),
]


@pytest.fixture
def edited(monkeypatch: pytest.MonkeyPatch) -> Iterator[Edited]:
    """Make edits, of a model too; PyTorch is as before when the test ends."""
    for owner, names in CHANGED:
        for name in names.split():
            monkeypatch.setattr(owner, name, getattr(owner, name))
    of_optimizers = sys.modules["torch.optim.optimizer"]
    for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        monkeypatch.setattr(of_optimizers, name, getattr(of_optimizers, name).copy())
    monkeypatch.setattr(edits_hook, "_optimizers", [])
    monkeypatch.setattr(edits_hook, "_models", [])

    def edit(root: Any = None, **edits: Any) -> None:
        monkeypatch.setenv(edits_hook.EDITS, json.dumps(edits))
        if root is None:
            edits_hook.before_models(torch)
        else:
            edits_hook.of_model(torch, root, dict(root.named_modules()))

    kind = torch.get_default_dtype()
    yield edit
    torch.set_default_dtype(kind)


def parameters(*sizes: int, grad: bool = True) -> list[Any]:
    made = [torch.nn.Parameter(torch.ones(size)) for size in sizes]
    for one in made:
        one.grad = torch.ones_like(one) if grad else None
    return made


def test_arguments_of_optimizers_are_replaced(edited: Edited) -> None:
    edited(optimizer={"foreach": True, "lr": 5.0})
    made = torch.optim.SGD(parameters(1), lr=0.1, momentum=0.5)
    assert [made.defaults[name] for name in ("foreach", "lr", "momentum")] == [True, 5.0, 0.5]
    assert edits_hook._optimizers == [made]


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_states_of_optimizers_are_replaced(edited: Edited, name: str) -> None:
    edited(eight_bit=True)
    large, small, without = [*parameters(4097, 4095), *parameters(9, grad=False)]
    made = getattr(torch.optim, name)([large, small, without])
    assert made.step() is None
    kept = made.state[large]["state1"]
    assert made.step(lambda: 7) == 7
    assert made.state[large]["state1"] is kept
    told = [
        {key: (str(one.dtype)[6:], [*one.shape]) for key, one in made.state[p].items()}
        for p in (large, small, without)
    ]
    bytes_, scales, floats = ("uint8", [4097]), ("float32", [17]), ("float32", [4095])
    assert told == [
        {"state1": bytes_, "state2": bytes_, "absmax1": scales, "absmax2": scales},
        {"state1": floats, "state2": floats},
        {},
    ]
    assert edits_hook._eight_bit_state(torch, torch.ones(4096))["state1"].dtype == torch.uint8
    edited(factored=True)
    factored = [getattr(torch.optim, name)(parameters(2), **given) for given in ({}, {"lr": 3})]
    assert all(isinstance(one, torch.optim.Adafactor) for one in factored)
    assert [one.defaults["lr"] for one in factored] == [0.01, 3.0]


def test_optimizers_without_a_state_and_gradients_that_are_freed(edited: Edited) -> None:
    edited(without_state=True, set_to_none=True)
    (only,) = parameters(3)
    made = torch.optim.Adam([only])
    assert (made.step(), made.step(lambda: 7), dict(made.state)) == (None, 7, {})
    model = torch.nn.Linear(2, 2)
    for owner, held in ((made, only), (model, model.weight)):
        held.grad = torch.ones_like(held)
        owner.zero_grad(set_to_none=False)
        assert held.grad is None


def test_parameters_are_updated_in_the_backward_pass(edited: Edited) -> None:
    edited(in_backward=True)
    first, second, frozen = parameters(1, 1, 1, grad=False)
    frozen.requires_grad_(False)
    made = torch.optim.SGD([{"params": [first, frozen]}, {"params": [second], "lr": 0.5}], lr=0.25)
    groups = made.param_groups
    (3 * first + 2 * second + frozen).sum().backward()
    assert [one.item() for one in (first, second, frozen)] == [0.25, 0.0, 1.0]
    assert first.grad is second.grad is None
    assert made.param_groups is groups


def test_types_buckets_and_caches(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    emptied, given = list[int](), list[Any]()
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(1))
    distributed = torch.nn.parallel.DistributedDataParallel
    monkeypatch.setattr(distributed, "__init__", lambda _self, *args, **more: given.append(more))
    edited(dtype="bfloat16", buckets=True, empty_cache="update")
    assert torch.zeros(1).dtype == torch.bfloat16
    distributed("model", gradient_as_bucket_view=False, static_graph=True)
    assert given == [{"gradient_as_bucket_view": True, "static_graph": True}]
    made = torch.optim.SGD(parameters(1))
    made.step()
    assert len(emptied) == 1
    first, second = (torch.nn.Linear(1, 1) for _ in range(2))
    for root in (first, second):
        edited(root, empty_cache="update")
        root(torch.ones(1))
    assert len(emptied) == 1
    for root in (first, second):
        edited(root, empty_cache="call")
        root(torch.ones(1))
    assert len(emptied) == 2  # before the first model alone


class Counted(torch.nn.Module):  # type: ignore[misc]
    """Two linear layers, and how often the forward pass of each begins."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.calls = torch.nn.Linear(2, 3), torch.nn.Linear(3, 4), list[str]()
        for name in ("a", "b"):
            layer = getattr(self, name)
            layer.register_forward_pre_hook(lambda _m, _x, name=name: self.calls.append(name))

    def forward(self, x: Any) -> Any:
        return self.b(self.a(x).relu())


def test_chosen_modules_are_computed_again(edited: Edited) -> None:
    model, begun = Counted(), list[int]()
    original = model.a.forward

    def forward(x: Any) -> Any:
        begun.append(1)
        return original(x)

    model.a.forward = forward
    edited(model, checkpoint=["a", "not there"])
    with torch.no_grad():
        model(torch.ones(2))
    assert len(begun) == 1
    model(torch.ones(2)).sum().backward()
    assert len(begun) == 3
    assert model.calls == ["a", "b", "a", "b"]


def test_models_are_offloaded_frozen_and_adapted(
    edited: Edited, monkeypatch: pytest.MonkeyPatch
) -> None:
    pinned = list[str]()

    @contextmanager
    def save_on_cpu(pin_memory: bool = False) -> Iterator[None]:
        pinned.append(f"begin {pin_memory}")
        yield
        pinned.append("end")

    monkeypatch.setattr(torch.autograd.graph, "save_on_cpu", save_on_cpu)
    model = Counted()
    edited(model, offload=True, freeze=["a", "", "c"])
    before = model(torch.ones(2))
    assert pinned == ["begin True", "end"]
    trained = [name for name, one in model.named_parameters() if one.requires_grad]
    assert trained == ["b.weight", "b.bias"]
    edited()
    made = torch.optim.SGD(model.parameters())
    edited(model, lora=["b", "c"])
    trained = [name for name, one in model.named_parameters() if one.requires_grad]
    assert trained == ["b.lora_down", "b.lora_up"]
    down, up = made.param_groups[-1]["params"]
    assert (down.shape, up.shape) == ((16, 3), (4, 16))
    assert model(torch.ones(2)).equal(before)
    with torch.no_grad():
        down.fill_(0.5)
        up.fill_(0.25)
    hidden = model.a(torch.ones(2)).relu().sum().item()
    assert (model(torch.ones(2)) - before).tolist() == pytest.approx([hidden * 4] * 4)


def test_steps_of_the_first_optimizer_end_a_program(
    edited: Edited, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_hook, "stopped", False)
    machine = Machine()
    recording_hook.StepMarks(machine, 2)
    first, second = (torch.optim.SGD(parameters(1)) for _ in range(2))
    for one in (first, second, second):
        one.step()
    assert machine.said == [recording_hook.OPTIMIZER_STEP]
    assert not recording_hook.stopped
    with pytest.raises(SystemExit) as ended:
        first.step()
    assert (ended.value.code, recording_hook.stopped) == (0, True)
    assert machine.said == [recording_hook.OPTIMIZER_STEP] * 2


# -- modules


class OnGpu:
    """A tensor with an address."""

    def __init__(self, address: int, device: str = "cuda", grad: Any = None, **more: Any) -> None:
        self.device, self.grad = SimpleNamespace(type=device), grad
        self.is_leaf, self.requires_grad = (
            more.get(name, True) for name in ("is_leaf", "requires_grad")
        )
        self.untyped_storage = lambda: SimpleNamespace(data_ptr=lambda: address)


def test_tensors_of_modules_are_found_by_address() -> None:
    model = torch.nn.Sequential(torch.nn.Module(), torch.nn.Module())
    weight = OnGpu(10, grad=OnGpu(11))
    wrapped = OnGpu(98, "elsewhere", OnGpu(99), requires_grad=False, is_leaf=False)
    wrapped._local_tensor = OnGpu(15)  # type: ignore[attr-defined]
    model[0]._parameters.update(weight=weight, none=None, host=OnGpu(12, "cpu"))
    model[0]._buffers.update(mean=OnGpu(13, requires_grad=False), early=OnGpu(14, "aaa"))
    model[1]._parameters.update(shard=wrapped)
    known = SimpleNamespace(Tensor=OnGpu, nn=torch.nn, fx=torch.fx)
    modules = module_hook.Modules(known)
    optimizer = type("Optimizer", (), {})()
    optimizer.state = {weight: {"m": OnGpu(20), "v": OnGpu(21), "step": 5}, "other": OnGpu(22)}
    modules._note_parameters = lambda *_: None  # type: ignore[method-assign]
    assert modules._added(model) is modules._paths[id(model)][2]
    modules.tell(optimizer)
    modules.tell(optimizer)
    own = [
        (10, "0", "parameters"), (11, "0", "gradients"),
        (13, "0", module_hook.FROZEN), (15, "1", module_hook.FROZEN),
    ]  # fmt: skip
    state = [(20, "0", "optimizer state"), (21, "0", "optimizer state")]
    assert [tensors for _, tensors in modules.told] == [own, own + state, None]
    del optimizer, model
    modules.tell()
    assert modules.told[-1][1] == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TorchScript
@pytest.mark.usefixtures("edited")
def test_the_shapes_of_outputs_whatever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_hook, "_modules", None)
    assert (module_hook.told(), module_hook.shapes(), module_hook.parameters()) == ([], {}, {})
    module_hook.after_torch(torch)
    called, endless = list[Any](), list[Any]()
    endless.append(endless)

    def tensor(*shape: int) -> Any:
        return torch.zeros(shape)

    @dataclass
    class Output:
        logits: Any
        hidden: Any

    class Loud(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_function__(
            cls, function: Any, types: Any, args: Any = (), more: Any = None
        ) -> Any:
            called.append(function)
            return super().__torch_function__(function, types, args, more or {})

    class Returns(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, *outputs: Any) -> None:
            super().__init__()
            self.outputs = [*outputs]

        def forward(self) -> Any:
            return self.outputs.pop(0)

    outputs: dict[str, tuple[Any, str]] = {
        "pair": ((tensor(1, 2), [tensor(3)]), "[1, 2], [3]"),
        "four": ([tensor(1)] * 4, "[1], [1], [1], [1]"),
        "many": ([tensor(1)] * 1_000, "[1], [1], [1], [1], ..."),
        "late": ([None] * 63 + [tensor(8), tensor(9)], ""),  # too many values
        "named": (Output(tensor(4, 5), {"hidden": (None, tensor())}), "[4, 5], []"),
        "none": (None, ""),
        "endless": (endless, ""),
        "loud": (tensor(2).as_subclass(Loud), "[2]"),
        "long": ([tensor(*[1] * 90)], str([1] * 90)[: module_hook.MOST_CHARACTERS]),
        "a;\ud800<b>": (tensor(6), "[6]"),
        "p" * 201: (tensor(7), "[7]"),
    }
    model = torch.nn.ModuleDict({name: Returns(output) for name, (output, _) in outputs.items()})
    model["later"] = Returns(tensor(1), tensor(2))
    for name in ("scripted", "compiled", "traced"):
        model[name] = torch.nn.Linear(3, 2)
    model["scripted"], model["faked"] = torch.jit.script(model["scripted"]), torch.nn.Identity()
    model.forward = lambda: [one() for one in model.children() if isinstance(one, Returns)]
    model()
    model["later"]()
    assert not called, called
    x = tensor(7, 3)
    model["scripted"](x)
    assert torch.compile(model["compiled"], backend="eager")(x).shape == (7, 2)
    with fake_tensor.FakeTensorMode() as mode:
        model["faked"](mode.from_tensor(x))
    assert str(torch.jit.trace(model["traced"], x).graph).count("aten::size") == 0
    shapes = module_hook.shapes()
    assert shapes.pop("ModuleDict").endswith(", ...")
    assert shapes.pop("Linear") == "[7, 2]"  # compiled, so it is a model of its own
    others = {"later": "[1]", "scripted": "[7, 2]", "faked": "[7, 3]"}
    told = {name[:200]: text for name, (_, text) in outputs.items() if text}
    assert shapes == told | others
    assert len(module_hook.told()) > 1
    assert module_hook.parameters()["traced"] == [("float32", [2, 3]), ("float32", [2])]


def test_paths_of_modules_leave_out_what_wraps_them() -> None:
    class Wraps(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, name: str, inner: Any) -> None:
            super().__init__()
            self.add_module(name, inner)

    def paths(root: Any) -> list[str]:
        modules = module_hook.Modules(torch)
        modules._added(root)
        return [path for _, path, _ in modules._paths.values()]

    assert paths(torch.nn.Sequential(torch.nn.Linear(1, 1))) == ["", "0"]
    model = Counted()
    assert paths(Wraps("_orig_mod", Wraps("module", model))) == ["", "", "", "a", "b"]
    assert paths(Wraps("module", Counted())) == ["", "", "a", "b"]
    assert paths(Wraps("inner", Counted())) == ["", "inner", "inner.a", "inner.b"]
    modules = module_hook.Modules(torch)
    modules._added(model)
    assert modules.parameters == {
        "a": [("float32", [3, 2]), ("float32", [3])],
        "b": [("float32", [4, 3]), ("float32", [4])],
    }
    assert [*modules._frames] == ["Counted", "a", "b"]
    modules._added(torch.fx.symbolic_trace(model))
    assert [*modules._frames] == ["Counted", "a", "b", ""]
