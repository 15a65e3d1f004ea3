# SPDX-License-Identifier: Apache-2.0
"""A model of the memory that CUDA kernels allocate, which captures under fake tensors do not see.

It derives a new trace from the sizes and operator names of a trace, and labels its additions: the
modelled allocs are labeled "scratch::...", and the provenance contains the model. A raw capture is
never changed. The model covers the following, with sizes from the sources of PyTorch 2.5 to 2.13:

- cuBLAS: one workspace per handle and stream, allocated by the first matrix product and kept;
  32 MiB on compute capability 9.0, else 2 x 4 MiB + 8 x 16 KiB (parseChosenWorkspaceSize in
  aten/src/ATen/cuda/CublasHandlePool.cpp). cuBLASLt is assumed to share it, the default if
  TORCH_CUBLASLT_UNIFIED_WORKSPACE is 1.
- Flash attention's backward pass: in float32, a sum for each row (batch, heads, queries) and an
  accumulator for the gradient of the queries (batch, queries, heads, head width). If there are
  fewer key heads than query heads, also gradients of keys and values for every query head
  (aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, mha_bwd). PyTorch rounds the
  number of queries up to 128 and the head width up to 32. The model cannot, because sizes alone do
  not reveal them: it is exact if both are such multiples, otherwise slightly low. Fewer key heads
  are detected when the gradients of the queries are an integer multiple of those of the keys.
- Convolutions: cuDNN selects an algorithm, and thus the workspace, for each shape by its own rules,
  which are not modelled. A fixed number of bytes per convolution can be given instead.

Not modelled: sort and reduction kernels, split-KV decoding, memory-efficient attention.
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
    """Bytes of kernel scratch memory: cuBLAS's workspace, and the workspace of each convolution."""

    cublas: int
    convolution: int = 0


GPUS = {"sm80": Model(2 * (4 << 20) + 8 * (16 << 10)), "sm90": Model(32 << 20)}
"""Models by the compute capability that PyTorch sees; sm80 stands for all except 9.0."""


def with_scratch(trace: Trace, model: Model) -> Trace:
    """A new trace that adds the scratch memory of its kernels; the given trace is not changed.

    The scratch memory of a kernel is allocated after the outputs of its operator and freed before
    the next event; cuBLAS's workspaces are kept. Raises TraceError for a trace without operator
    names, and for one that has the scratch of its kernels.
    """
    if trace.label is None:
        raise TraceError("kernel scratch needs operator names, and this trace has none")
    if trace.provenance.device.startswith("null:") or trace.provenance.kind == "recorded":
        raise TraceError(
            f"a trace of {trace.provenance.device} already has the scratch of its kernels"
        )
    labels = {label: place for place, label in enumerate(trace.labels)}
    after = list[int]()  # by new event: the event that it follows
    events = list[tuple[int, int, int, int]]()  # op, block, size, label
    blocks = trace.allocs
    for event, scratch_size, kept in _scratch(trace, model):
        ids = range(blocks, blocks + len(scratch_size))
        blocks = ids.stop
        for block, (size, label) in zip(ids, scratch_size, strict=True):
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
        **trace.named(lambda column: np.insert(column, places, column[after]))
        | {"label": np.insert(trace.label, places, new[3])},
        time_ns=None
        if trace.time_ns is None
        else np.insert(trace.time_ns, places, trace.time_ns[after]),
        pool=None if trace.pool is None else np.insert(trace.pool, places, trace.pool[after]),
        provenance=replace(
            provenance,
            name=f"{provenance.name}+scratch",
            extra={**provenance.extra, "scratch (modelled)": asdict(model)},
        ),
    )


def _scratch(trace: Trace, model: Model) -> Iterator[tuple[int, list[Asked], bool]]:
    """Per kernel with scratch: the event of its last output, the scratch, whether it is kept."""
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
        elif name == f"{FLASH}_backward" and (scratch_size := attention.backward(size)):
            yield event, scratch_size, False


class _FlashAttention:
    """Tracks the outputs of flash attention: forward result, row sums and gradients."""

    _FORWARD, _BACKWARD = 4, 3  # outputs: result, row sums, seed, offset; three gradients

    def __init__(self) -> None:
        self._outputs: list[tuple[int, int]] = []  # blocks and sizes of the current forward pass
        self._gradients: list[int] = []
        self._rows: dict[
            int, tuple[int, int]
        ] = {}  # live row sums: size, and the size of the result

    def forward(self, block: int, size: int) -> None:
        self._outputs.append((block, size))
        if len(self._outputs) == self._FORWARD:
            (_, result), (rows, rows_size), *_ = self._outputs
            self._rows[rows] = rows_size, result
            self._outputs.clear()

    def free(self, block: int) -> None:
        self._rows.pop(block, None)

    def backward(self, size: int) -> list[Asked]:
        """The scratch of a backward pass, if this was the last of its gradients."""
        self._gradients.append(size)
        if len(self._gradients) < self._BACKWARD:
            return []
        query, key, value = self._gradients
        self._gradients.clear()
        # Of the forward passes with this result size, take the latest: backward goes in reverse
        # order.
        rows_of_query = [rows for rows, result in self._rows.values() if result == query]
        sizes = [*rows_of_query[-1:], 2 * query]
        if key == value < query and query % key == 0:
            sizes += [query, query]
        return [(size, "scratch::flash_attention_backward") for size in sizes]
