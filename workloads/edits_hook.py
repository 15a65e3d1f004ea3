# SPDX-License-Identifier: Apache-2.0
"""Makes edits of `allocbench whatif` in a program that runs, from outside.

The environment variable EDITS names the edits, as JSON; the functions of this module with these
names make them, with the value as argument. Most change PyTorch before the program uses it; those
in _OF_MODELS change a model when it is first called. What an edit needs that is not installed, such
as 8-bit optimizers, is replaced by code that makes the same allocations. Only the standard library
and PyTorch may be used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

EDITS = "ALLOCBENCH_EDITS"
"""The environment variable with edits of the program, as JSON."""
EIGHT_BIT_FROM = 4096
"""Elements of the smallest parameter whose state bitsandbytes keeps in 8 bits (min_8bit_size)."""
EIGHT_BIT_BLOCK = 256
"""Elements that share one float32 scale in these states."""
LORA_RANK = 16
"""Columns of the two matrices that LoRA trains for each weight."""
_optimizers: list[Any] = []
_models: list[Any] = []


def before_models(torch: Any) -> None:
    """Make the edits that are not of a model."""
    initialize = torch.optim.Optimizer.__init__

    @wraps(initialize)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        initialize(self, *arguments, **options)
        _optimizers.append(self)

    torch.optim.Optimizer.__init__ = init
    for name, value in _edits().items():
        if name in _BEFORE:
            _BEFORE[name](torch, value)


def of_model(torch: Any, root: Any, modules: Mapping[str, Any]) -> None:
    """Make the edits of a model that is called for the first time; modules: by their paths."""
    for name, value in _edits().items():
        if name in _OF_MODELS:
            _OF_MODELS[name](torch, root, modules, value)


def _edits() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(os.environ.get(EDITS, "{}"))
    return read


def _optimizer(torch: Any, arguments: Mapping[str, Any]) -> None:
    """All optimizers that are made from now on use some arguments."""
    original = torch.optim.Optimizer.__init__

    def init(self: Any, params: Any, defaults: dict[str, Any]) -> None:
        original(self, params, {**defaults, **arguments})

    torch.optim.Optimizer.__init__ = init


def _eight_bit(torch: Any, _value: bool) -> None:
    """Adam and AdamW make the allocations of bitsandbytes.optim.Adam8bit."""

    def step(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        loss = None if closure is None else closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None and not self.state[p]:
                    self.state[p].update(_eight_bit_state(torch, p))
        return loss

    for kind in (torch.optim.Adam, torch.optim.AdamW):
        kind.step = step


def _eight_bit_state(torch: Any, p: Any) -> dict[str, Any]:
    if p.numel() < EIGHT_BIT_FROM:
        return {f"state{n}": torch.zeros_like(p, dtype=torch.float32) for n in (1, 2)}
    scales = -(-p.numel() // EIGHT_BIT_BLOCK)
    state = {f"state{n}": torch.zeros_like(p, dtype=torch.uint8) for n in (1, 2)}
    return state | {f"absmax{n}": torch.zeros(scales, device=p.device) for n in (1, 2)}


def _factored(torch: Any, _value: bool) -> None:
    """torch.optim.Adafactor takes the place of Adam and AdamW."""

    def init(self: Any, params: Any, lr: float = 1e-2, **_others: Any) -> None:
        torch.optim.Adafactor.__init__(self, params, lr=float(lr))

    for name in ("Adam", "AdamW"):
        kind = type(name, (torch.optim.Adafactor,), {"__init__": init})
        setattr(torch.optim, name, kind)


def _without_state(torch: Any, _value: bool) -> None:
    """Optimizers keep no state on the GPU, and update nothing there."""

    def step(self: Any, closure: Callable[[], Any] | None = None) -> Any:
        return None if closure is None else closure()

    kinds: list[Any] = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, torch.optim.Optimizer):
            kind.step = step


def _in_backward(torch: Any, _value: bool) -> None:
    """Each parameter is updated as soon as its gradient is complete, which is then freed."""
    original = torch.optim.Optimizer.add_param_group

    def add(self: Any, group: dict[str, Any]) -> None:
        original(self, group)
        for p in self.param_groups[-1]["params"]:
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda p, self=self: _update_one(self, p))

    torch.optim.Optimizer.add_param_group = add


def _update_one(optimizer: Any, parameter: Any) -> None:
    groups = optimizer.param_groups
    (group,) = (group for group in groups if any(parameter is p for p in group["params"]))
    optimizer.param_groups = [{**group, "params": [parameter]}]
    try:
        # Without the marks of a step, which only the program's own call sets.
        type(optimizer).step.__wrapped__(optimizer)
    finally:
        optimizer.param_groups = groups
    parameter.grad = None


def _set_to_none(torch: Any, _value: bool) -> None:
    """`zero_grad` frees gradients, whatever its argument is."""
    for kind in (torch.optim.Optimizer, torch.nn.Module):
        original = kind.zero_grad
        kind.zero_grad = lambda self, *_arguments, original=original, **_options: original(self)


def _dtype(torch: Any, name: str) -> None:
    """Tensors of floats have this type unless the program states another."""
    torch.set_default_dtype(getattr(torch, name))


def _buckets(torch: Any, _value: bool) -> None:
    """Gradients are views of the buckets of DistributedDataParallel."""
    kind = torch.nn.parallel.DistributedDataParallel
    original = kind.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **{**options, "gradient_as_bucket_view": True})

    kind.__init__ = init


def _empty_cache(torch: Any, where: str) -> None:
    """PyTorch gives its cache back before each update of an optimizer."""
    if where == "update":
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(lambda *_arguments: torch.cuda.empty_cache())


def _empty_cache_of_model(torch: Any, root: Any, _modules: Mapping[str, Any], where: str) -> None:
    """PyTorch gives its cache back before each call of the model that is called first."""
    if where == "call" and not _models:
        _models.append(root)
        forward = root.forward

        def called(*arguments: Any, **options: Any) -> Any:
            torch.cuda.empty_cache()
            return forward(*arguments, **options)

        root.forward = called


def _checkpoint(torch: Any, _root: Any, modules: Mapping[str, Any], chosen: Sequence[str]) -> None:
    """Modules compute their forward pass again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def checkpointed(*arguments: Any, **options: Any) -> Any:
            if not torch.is_grad_enabled():
                return forward(*arguments, **options)
            return checkpoint(forward, *arguments, use_reentrant=False, **options)

        return checkpointed

    for path in chosen:
        if path in modules:
            modules[path].forward = wrap(modules[path].forward)


def _offload(torch: Any, root: Any, _modules: Mapping[str, Any], _value: bool) -> None:
    """What the model saves for the backward pass is kept in host memory."""
    forward = root.forward

    def saved(*arguments: Any, **options: Any) -> Any:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return forward(*arguments, **options)

    root.forward = saved


def _freeze(torch: Any, _root: Any, modules: Mapping[str, Any], chosen: Sequence[str]) -> None:
    """The parameters of some modules are not trained, without those of their children."""
    for path in chosen:
        if path in modules:
            for parameter in modules[path].parameters(recurse=False):
                parameter.requires_grad_(False)


def _lora(torch: Any, root: Any, modules: Mapping[str, Any], chosen: Sequence[str]) -> None:
    """Linear modules get two small trained matrices, as in PEFT; all else is not trained."""
    root.requires_grad_(False)
    added = list(_with_lora(torch, [modules[path] for path in chosen if path in modules]))
    if added and _optimizers:
        _optimizers[-1].add_param_group({"params": added})


def _with_lora(torch: Any, modules: Sequence[Any]) -> Iterator[Any]:
    functional = torch.nn.functional
    for module in modules:
        wide, narrow = module.weight.shape[1], module.weight.shape[0]
        of = {"device": module.weight.device, "dtype": module.weight.dtype}
        down = torch.nn.Parameter(torch.zeros(LORA_RANK, wide, **of))
        up = torch.nn.Parameter(torch.zeros(narrow, LORA_RANK, **of))
        module.lora_down, module.lora_up = down, up
        forward = module.forward

        def adapted(x: Any, forward: Any = forward, down: Any = down, up: Any = up) -> Any:
            low = functional.linear(functional.linear(x, down), up)
            return forward(x) + low * 2.0

        module.forward = adapted
        yield from (down, up)


_BEFORE: Mapping[str, Callable[[Any, Any], None]] = {
    "optimizer": _optimizer,
    "eight_bit": _eight_bit,
    "factored": _factored,
    "without_state": _without_state,
    "in_backward": _in_backward,
    "set_to_none": _set_to_none,
    "dtype": _dtype,
    "buckets": _buckets,
    "empty_cache": _empty_cache,
}
_OF_MODELS: Mapping[str, Callable[[Any, Any, Mapping[str, Any], Any], None]] = {
    "empty_cache": _empty_cache_of_model,
    "checkpoint": _checkpoint,
    "offload": _offload,
    "freeze": _freeze,
    "lora": _lora,
}
