# SPDX-License-Identifier: Apache-2.0
"""A model of what CUDA kernels take for themselves, which captures under fake tensors do not see.

It makes another trace of a trace, from sizes and the operators' names alone, and says so: its
allocs are labelled "scratch::...", and the provenance holds the model. A raw capture is never
changed. Modelled are, with the sizes of PyTorch's sources (2.5 to 2.13):

- cuBLAS: one workspace for the handle of a stream, taken by its first matrix product and kept;
  32 MiB on compute capability 9.0, else 2 x 4 MiB + 8 x 16 KiB (parseChosenWorkspaceSize in
  aten/src/ATen/cuda/CublasHandlePool.cpp). cuBLASLt is taken to share it, as it does by default
  where TORCH_CUBLASLT_UNIFIED_WORKSPACE is 1.
- Flash attention's backward pass: in float32, a sum for each row (batch, heads, queries) and an
  accumulator for the gradient of the queries (batch, queries, heads, head width); with fewer heads
  of keys than of queries, gradients of keys and values for every query head
  (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, mha_bwd). There the number of
  queries is rounded up to 128 and the head width to 32, here neither, for sizes alone do not tell
  them: the model is exact where both are such multiples, else a little low. Fewer heads show as
  gradients of the queries a whole number of times as large as those of the keys.
- Convolutions: cuDNN chooses an algorithm, and with it the workspace, for each shape by its own
  rules. There is no model of them, but a number of bytes may be given that each one takes.

Not modelled: sorting and reducing kernels, split-KV decoding, memory-efficient attention.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np

from allocbench.workloads.trace import ALLOC, FREE, Trace, TraceError

FLASH = "aten::_scaled_dot_product_flash_attention"
_PRODUCTS = ("addbmm", "addmm", "addmv", "baddbmm", "bmm", "linear", "mm", "mv")
_CONVOLUTIONS = ("aten::convolution", "aten::convolution_backward")

Asked = tuple[int, str]  # bytes, label


@dataclass(frozen=True)
class Model:
    """What kernels take: bytes of cuBLAS's workspace, and of each convolution's."""

    cublas: int
    convolution: int = 0


GPUS = {"sm80": Model(2 * (4 << 20) + 8 * (16 << 10)), "sm90": Model(32 << 20)}
"""Models by the compute capability that PyTorch sees: sm80 is every one but 9.0."""


def with_scratch(trace: Trace, model: Model) -> Trace:
    """The trace with the scratch of its kernels: a new one, the given one stays as it is.

    What a kernel takes is allocated after the outputs of its operator, and freed before the next
    event; cuBLAS's workspaces stay. Raises TraceError for a trace without operators' names.
    """
    if trace.label is None:
        raise TraceError("kernel scratch is modelled by operators, and this trace names none")
    labels = {label: place for place, label in enumerate(trace.labels)}
    after = list[int]()  # for each new event, the event that it follows
    events = list[tuple[int, int, int, int]]()  # op, block, size, label
    blocks = trace.allocs
    for event, asked, kept in _scratch(trace, model):
        ids = range(blocks, blocks + len(asked))
        blocks = ids.stop
        for block, (size, label) in zip(ids, asked, strict=True):
            events.append((ALLOC, block, size, labels.setdefault(label, len(labels))))
        if not kept:
            events += [(FREE, block, 0, 0) for block in reversed(ids)]
        after += [event] * (len(events) - len(after))
    places = np.array(after, np.intp) + 1
    new = np.array(events, np.uint64).reshape(-1, 4).T
    provenance = trace.provenance
    return replace(
        trace,
        op=np.insert(trace.op, places, new[0]),
        block=np.insert(trace.block, places, new[1]),
        size=np.insert(trace.size, places, new[2]),
        stream=np.insert(trace.stream, places, trace.stream[after]),
        labels=tuple(labels),
        label=np.insert(trace.label, places, new[3]),
        time_ns=None
        if trace.time_ns is None
        else np.insert(trace.time_ns, places, trace.time_ns[after]),
        provenance=replace(
            provenance,
            name=f"{provenance.name}+scratch",
            extra={**provenance.extra, "scratch (modelled)": asdict(model)},
        ),
    )


def _scratch(trace: Trace, model: Model) -> Iterator[tuple[int, list[Asked], bool]]:
    """The last output's event of each kernel that takes scratch, what, and whether it is kept."""
    assert trace.label is not None
    names = [name.removeprefix("aten::") for name in trace.labels]
    product = {place for place, name in enumerate(names) if name in _PRODUCTS}
    seen_streams, attention = set[int](), _FlashAttention()
    columns = (trace.op, trace.block, trace.size, trace.stream, trace.label)
    events = zip(*(column.tolist() for column in columns), strict=True)
    for event, (op, block, size, stream, label) in enumerate(events):
        if op == FREE:
            attention.free(block)
        if op != ALLOC:
            continue
        name = trace.labels[label]
        if label in product and stream not in seen_streams:
            seen_streams.add(stream)
            yield event, [(model.cublas, "scratch::cublas")], True
        elif name in _CONVOLUTIONS and model.convolution and size:
            yield event, [(model.convolution, "scratch::convolution")], False
        elif name == FLASH:
            attention.forward(block, size)
        elif name == f"{FLASH}_backward" and (asked := attention.backward(size)):
            yield event, asked, False


class _FlashAttention:
    """Follows the outputs of flash attention: forward's output and row sums, backward's three."""

    _FORWARD, _BACKWARD = 4, 3  # outputs: result, row sums, seed, offset; three gradients

    def __init__(self) -> None:
        self._outputs: list[tuple[int, int]] = []  # blocks and sizes of a forward pass so far
        self._gradients: list[int] = []
        self._rows: dict[int, tuple[int, int]] = {}  # live row sums: size, and the result's size

    def forward(self, block: int, size: int) -> None:
        self._outputs.append((block, size))
        if len(self._outputs) == self._FORWARD:
            (_, result), (rows, rows_size), *_ = self._outputs
            self._rows[rows] = rows_size, result
            self._outputs.clear()

    def free(self, block: int) -> None:
        self._rows.pop(block, None)

    def backward(self, size: int) -> list[Asked]:
        """What a backward pass takes, when this was the last of its gradients."""
        self._gradients.append(size)
        if len(self._gradients) < self._BACKWARD:
            return []
        query, key, value = self._gradients
        self._gradients.clear()
        # Of the forward passes with such a result the latest, for backward goes back in time.
        known = [rows for rows, result in self._rows.values() if result == query]
        sizes = [*known[-1:], 2 * query]
        if key == value < query and query % key == 0:
            sizes += [query, query]
        return [(size, "scratch::flash_attention_backward") for size in sizes]
