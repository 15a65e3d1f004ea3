# SPDX-License-Identifier: Apache-2.0
"""The hook of `allocbench record` for modules: which module of a model makes each allocation.

PyTorch's history has the Python frames of each allocation. While a module is called, this hook adds
a frame named after the module's path, such as "transformer.h.3.mlp", in place of a function's name.
Parameters, gradients and the optimizer's state are found by their addresses, because they are not
allocated while their module is called. Nothing here keeps a module or a tensor alive, and errors
never reach the program. Only the standard library may be used.

If the environment has edits of the program, `edits_hook` makes them.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

FILE = "<allocbench.module>"
"""The file name of all frames that are added, those without a path too; as in
workloads/importers/labels.py."""
_EDITS = "ALLOCBENCH_EDITS"  # as in edits_hook.py
_INNER = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
"""Names of what torch.compile, FSDP and PyTorch's checkpoint wrapper wrap."""
PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
FROZEN = "buffers and parameters without gradients"
"""Kinds of tensors, as in workloads/block_origins.py."""
Tensor = tuple[int, str, str]
"""An address, the path of a module, and a kind."""
_MODEL = "module"
"""The name of what DataParallel and DistributedDataParallel wrap."""
OUTPUT_SHAPES = "output_shapes"
"""Key in a provenance's `extra`: the shapes of what modules returned first, by path."""
PARAMETER_SHAPES = "parameter_shapes"
"""Key in a provenance's `extra`: the type and the shape of each parameter of a module, by path."""
MOST_SHAPES, MOST_CHARACTERS = 10_000, 200  # modules; of a path, and of the shapes of an output
_MOST_VALUES, _MOST_TENSORS = 64, 4  # of an output


class Modules:
    """The modules that were called, by identity. A root is a module that no other one contains."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._call: Callable[..., Any] = torch.nn.Module.__call__
        self._paths: dict[int, tuple[Any, str, Callable[..., Any]]] = {}
        self._frames: dict[str, Callable[..., Any]] = {}
        self._roots: list[Any] = []  # weak references
        self._optimizers: dict[int, Any] = {}  # weak references
        self._lock = threading.Lock()
        self.told: list[tuple[int, list[Tensor] | None]] = []
        """When (ns), and the tensors; None: the same as the time before."""
        self._last: list[Tensor] = []
        self.shapes: dict[str, str] = {}
        """By path: what a module returned first, such as "[8, 128], [8, 4]"; "" without tensors."""
        self.parameters: dict[str, list[tuple[str, list[int]]]] = {}
        """By path: the type and the shape of each parameter of a module, without its children."""
        self._edits = _edits_hook()
        if self._edits is not None:
            self._edits.before_models(torch)

    def watch(self) -> None:
        """Add the frames to all calls of modules from now on."""
        original, paths, added = self._call, self._paths, self._added
        is_compiling = self._torch.compiler.is_compiling

        def call(self: Any, /, *args: Any, **options: Any) -> Any:
            # The profiler of PyTorch looks for a variable `self` in this frame.
            if is_compiling():
                return original(self, *args, **options)
            watched = paths.get(id(self))
            if watched is None or watched[0]() is not self:
                return added(self)(self, *args, **options)
            return watched[2](self, *args, **options)

        call.__code__ = call.__code__.replace(co_name="", co_filename=FILE)
        self._skip(call)
        self._skip(self._note)
        self._torch.nn.Module.__call__ = call

    def _added(self, root: Any) -> Callable[..., Any]:
        """The frame of a module that was not called before; its children are known from now on."""
        try:
            with self._lock:
                model = root
                while (inner := _wrapped(model)) is not None:
                    model = inner
                # The name of a graph that torch.compile or torch.fx made says nothing.
                is_graph = isinstance(model, self._torch.fx.GraphModule)
                name = "" if is_graph else type(model).__name__
                paths = dict[str, Any]()
                for path, module in root.named_modules():
                    parts = [part for part in path.split(".") if part not in _INNER]
                    wrapped = model is not root and parts[:1] == [_MODEL]
                    where = ".".join(parts[1:] if wrapped else parts)
                    self._paths[id(module)] = weakref.ref(module), where, self._frame(where or name)
                    paths[where or name] = module
                    self._note_parameters(where or name, module)
                if self._edits is not None:
                    self._edits.of_model(self._torch, root, paths)
                self._roots = [reference for reference in self._roots if reference() is not None]
                self._roots.append(weakref.ref(root))
            self.tell()
            return self._paths[id(root)][2]
        except Exception:
            return self._call

    def _note_parameters(self, path: str, module: Any) -> None:
        own = [one for one in module._parameters.values() if one is not None]
        if own and len(self.parameters) < MOST_SHAPES:
            told = [(str(one.dtype).removeprefix("torch."), [*one.shape]) for one in own]
            self.parameters[path[:MOST_CHARACTERS]] = told[:_MOST_TENSORS]

    def _frame(self, path: str) -> Callable[..., Any]:
        """A function that calls a module, in a frame named after a path."""
        if path not in self._frames:
            original, shapes, note = self._call, self.shapes, self._note

            def call(self: Any, /, *args: Any, **options: Any) -> Any:
                output = original(self, *args, **options)
                if path not in shapes:
                    note(path, output)
                return output

            code = call.__code__.replace(co_name=path, co_filename=FILE, co_firstlineno=1)
            function = FunctionType(code, {}, path, None, call.__closure__)
            self._skip(function)
            self._frames[path] = function
        return self._frames[path]

    def _note(self, path: str, output: Any) -> None:
        """Note the shapes of the first tensors in an output, in order.

        It calls no other Python function, which torch.compile would compile, and nothing of a
        subclass of tensors; torch.jit.trace would record that a shape is read.
        """
        if len(self.shapes) >= MOST_SHAPES:
            return
        self.shapes[path] = ""
        found, values = list[str](), [output]
        with suppress(Exception), self._torch._C.DisableTorchFunction():
            for _ in range(0 if self._torch._C._get_tracing_state() else _MOST_VALUES):
                value = values.pop(0) if values else None
                if isinstance(value, self._torch.Tensor):
                    found.append(str([*value.shape]))
                elif isinstance(value, dict):
                    values[:0] = [*dict.values(value)][:_MOST_VALUES]
                elif isinstance(value, list | tuple):
                    values[:0] = value[:_MOST_VALUES]
                elif names := getattr(type(value), "__dataclass_fields__", None):
                    values[:0] = [getattr(value, name) for name in names]
            text = ", ".join(found[:_MOST_TENSORS] + ["..."] * (len(found) > _MOST_TENSORS))
            self.shapes[path] = text[:MOST_CHARACTERS]

    def _skip(self, function: Callable[..., Any]) -> None:
        """Have torch.compile run this function as it is, but not what it calls."""
        with suppress(Exception):
            self._torch._C._dynamo.eval_frame.skip_code(function.__code__)

    def tell(self, optimizer: Any = None) -> None:
        """Note where the tensors of all known modules, and of an optimizer, are now."""
        with suppress(Exception):
            if optimizer is not None:
                self._optimizers[id(optimizer)] = weakref.ref(optimizer)
            tensors = sorted({*self._tensors()})
            self.told.append((time.time_ns(), tensors if tensors != self._last else None))
            self._last = tensors

    def _tensors(self) -> Iterator[Tensor]:
        states = [optimizer.state for optimizer in _alive(self._optimizers.values())]
        for root in _alive(self._roots):
            for module in root.modules():
                known = self._paths.get(id(module))
                if known is None:
                    continue
                path = known[1] or type(module).__name__
                for tensor in (*module._parameters.values(), *module._buffers.values()):
                    if tensor is None:
                        continue
                    kept = [value for state in states for value in _values(state, tensor)]
                    with_kinds = [
                        (tensor, PARAMETERS if tensor.requires_grad else FROZEN),
                        (tensor.grad if tensor.is_leaf else None, GRADIENTS),
                        *((value, STATE) for value in kept),
                    ]
                    for value, kind in with_kinds:
                        if address := self._address(value):
                            yield address, path, kind

    def _address(self, tensor: Any) -> int:
        """Where the storage of a tensor on a GPU begins, otherwise 0."""
        tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor, as in FSDP2
        if not isinstance(tensor, self._torch.Tensor) or tensor.device.type != "cuda":
            return 0
        with suppress(Exception):  # a tensor without a storage
            return int(tensor.untyped_storage().data_ptr())
        return 0


def _alive(references: Iterable[Any]) -> list[Any]:
    """What weak references refer to. Not by its truth: a module may not have a length."""
    return [one for one in (reference() for reference in references) if one is not None]


def _wrapped(module: Any) -> Any:
    """The only child of a module that wraps a model, or None."""
    children = getattr(module, "_modules", {})
    name = next(iter(children), "")
    return children[name] if len(children) == 1 and name in (*_INNER, _MODEL) else None


def _values(states: Any, parameter: Any) -> list[Any]:
    """What an optimizer keeps for a parameter."""
    state = states.get(parameter)
    return [*state.values()] if isinstance(state, dict) else []


_modules: Modules | None = None


def told() -> list[tuple[int, list[Tensor] | None]]:
    """The result of `Modules.told` for this process."""
    return _modules.told if _modules is not None else []


def shapes() -> dict[str, str]:
    """The shapes of the outputs of this process's modules, by path."""
    found = _modules.shapes if _modules is not None else {}
    return {path[:MOST_CHARACTERS]: text for path, text in found.items() if path and text}


def parameters() -> dict[str, list[tuple[str, list[int]]]]:
    """The types and shapes of the parameters of this process's modules, by path."""
    return _modules.parameters if _modules is not None else {}


def _edits_hook() -> Any:
    """The module that makes edits; None for a program without edits."""
    if _EDITS not in os.environ:
        return None
    file = os.path.join(os.path.dirname(__file__), "edits_hook.py")
    spec = importlib.util.spec_from_file_location("allocbench_edits_hook", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def after_torch(torch: ModuleType) -> None:
    """Watch modules and optimizers; errors leave the program unchanged."""
    global _modules
    with suppress(Exception):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        modules = Modules(torch)
        modules.watch()
        register_optimizer_step_post_hook(lambda optimizer, *_rest: modules.tell(optimizer))
        _modules = modules
