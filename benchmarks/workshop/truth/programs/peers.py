# SPDX-License-Identifier: Apache-2.0
"""What other estimators say of a training run, instead of training: the options of cnn.py.

    python peers.py cnn|transformer --model=NAME --optimizer=NAME --batch=N

Prints one line of JSON: for each estimator, its bytes or the reason why it gives none. PYTHONPATH
has what is not installed here: FakeGPU and DeepSpeed.
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import training
from training import Batch

Loss = Callable[[torch.nn.Module, Batch], tuple[Any, torch.Tensor]]


def accelerate(model: torch.nn.Module, *_: Any) -> int:
    """`accelerate estimate-memory`: the column on training with Adam in single precision."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    size, _largest = calculate_maximum_sizes(model)
    return int(max(estimate_training_usage(size, "float32").values()))


def deepspeed(model: torch.nn.Module, *_: Any) -> int:
    """`estimate_zero2_model_states_mem_needs` for one GPU without offloading."""
    from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs

    parameters = sum(parameter.numel() for parameter in model.parameters())
    _cpu, gpu = estimate_zero2_model_states_mem_needs(parameters, 1, 1, cpu_offload=False)
    return int(gpu)


def mem_tracker(
    model: torch.nn.Module, make_batch: Callable[[], Batch], loss: Loss, told: argparse.Namespace
) -> int:
    """PyTorch's MemTracker on fake tensors, which torchtitan's estimation uses."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = _on_gpu(model)
        optimizer = training.make_optimizer(told.optimizer, fake)
        tracker = MemTracker()
        tracker.track_external(fake, optimizer)
        with tracker:
            for _step in range(2):
                batch = {
                    name: torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda")
                    for name, tensor in _without_mask(make_batch()).items()
                }
                optimizer.zero_grad()
                _outputs, value = loss(fake, batch)
                value.backward()
                optimizer.step()
                tracker.reset_mod_stats()
    peak = tracker.get_tracker_snapshot("peak")
    return int(next(found for device, found in peak.items() if device.type == "cuda")["Total"])


def _on_gpu(model: torch.nn.Module) -> torch.nn.Module:
    """The model with fake parameters and buffers on the GPU."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    return model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="cuda"))


def fakegpu(
    model: torch.nn.Module, make_batch: Callable[[], Batch], _loss: Loss, told: argparse.Namespace
) -> int:
    """FakeGPU's static estimate of a training step."""
    from fakegpu.memory_estimator import estimate_module_memory

    batch = _without_mask(make_batch())
    of_images = "images" in batch
    found = estimate_module_memory(
        model,
        (batch["images"],) if of_images else (),
        example_kwargs=None if of_images else batch,
        optimizer=told.optimizer.lower(),
        loss_fn=None if of_images else lambda out: out.loss,
        target_device="cuda",
    )
    return int(found["estimated_peak_bytes"])


def _without_mask(batch: Batch) -> Batch:
    """Models of transformers read whether a mask is full, and fake tensors have no values."""
    return {name: tensor for name, tensor in batch.items() if name != "attention_mask"}


PEERS = accelerate, deepspeed, fakegpu, mem_tracker


def estimate(
    model: torch.nn.Module,
    make_batch: Callable[[], Batch],
    loss: Loss,
    told: argparse.Namespace,
    sampled_after_moving: bool,
) -> None:
    """In the place of `training.train`: print what each estimator says."""
    said: dict[str, Any] = {"sampled_after_moving": sampled_after_moving}
    for peer in PEERS:
        try:
            said[peer.__name__] = peer(model, make_batch, loss, told)
        except Exception as error:
            said[peer.__name__] = (str(error).splitlines() or [type(error).__name__])[0]
    print(json.dumps(said))


if __name__ == "__main__":
    training.train = estimate
    kind = sys.argv.pop(1)
    runpy.run_path(str(Path(__file__).with_name(f"{kind}.py")), run_name="__main__")
