# SPDX-License-Identifier: Apache-2.0
"""Allocs whose size is a model: workspaces of NVIDIA's libraries on a null GPU.

The label of such an alloc ends with its rule: "aten::convolution [modelled: fft_workspace]".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from allocbench.workloads.streaming import Part
from allocbench.workloads.trace import ALLOC, Trace

_MARK = re.compile(r"\[modelled: (\w+)\]$")


def marked(label: str, rule: str) -> str:
    """The label of an alloc whose size comes from a rule."""
    return f"{label} [modelled: {rule}]".lstrip()


def rule_of(label: str) -> str:
    """The rule in a label, or ""."""
    match = _MARK.search(label)
    return match[1] if match else ""


def modelled(trace: Trace) -> dict[str, tuple[int, int]]:
    """The modelled allocs of a trace: rule -> how many there are, and the sum of their bytes."""
    return modelled_in(trace, trace.labels)


def modelled_in(part: Trace | Part, labels: Sequence[str]) -> dict[str, tuple[int, int]]:
    """As `modelled`, for a part of a trace with these labels."""
    by_rule = dict[str, tuple[int, int]]()
    if part.label is None:
        return by_rule
    for number, label in enumerate(labels):
        if not (rule := rule_of(label)):
            continue
        sizes = part.size[(part.op == ALLOC) & (part.label == number)]
        if len(sizes):
            count, total = by_rule.get(rule, (0, 0))
            by_rule[rule] = count + len(sizes), total + int(sizes.sum(dtype=np.uint64))
    return by_rule


def sentence(by_rule: Mapping[str, tuple[int, int]]) -> str:
    """ "12 allocs of 4,096 bytes are modelled workspaces: fft_workspace 12"; "" for none."""
    if not by_rule:
        return ""
    allocs, total = (sum(column) for column in zip(*by_rule.values(), strict=True))
    rules = ", ".join(f"{rule} {count:,}" for rule, (count, _) in sorted(by_rule.items()))
    return f"{allocs:,} allocs of {total:,} bytes in all are modelled workspaces: {rules}"
