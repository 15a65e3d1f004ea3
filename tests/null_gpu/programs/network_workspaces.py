"""The workspace of each convolution in a file: what it requests in addition to its results."""

import json
import sys
from pathlib import Path

import torch

aten = torch.ops.aten


def requested():
    return torch.cuda.memory_stats().get("requested_bytes.all.allocated", 0)


def workspace(kind, batch, channels, side, outputs, pixels, stride, padding, groups, name, last):
    layout = torch.channels_last if last else torch.contiguous_format
    made = {"device": "cuda", "dtype": getattr(torch, name)}
    images = torch.empty(batch, channels, side, side, **made).to(memory_format=layout)
    shape = outputs, channels // groups, pixels, pixels
    filters = torch.empty(*shape, **made).to(memory_format=layout)
    options = [stride] * 2, [padding] * 2, [1, 1], False, [0, 0], groups
    out = (side + 2 * padding - pixels) // stride + 1
    before = requested()
    if kind == "forward":
        results = [aten.convolution(images, filters, None, *options)]
    else:
        above = torch.empty(batch, outputs, out, out, **made).to(memory_format=layout)
        before = requested()
        mask = [kind == "input", kind == "filter", False]
        results = aten.convolution_backward(above, images, filters, None, *options, mask)
    sizes = [result.nbytes for result in results if result is not None]
    return requested() - before - sum(sizes)


rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
print(json.dumps({"workspaces": [workspace(*row[:-1]) for row in rows]}))
