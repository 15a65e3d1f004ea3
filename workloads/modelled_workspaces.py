# SPDX-License-Identifier: Apache-2.0
"""Allocs whose size is a model: workspaces of NVIDIA's libraries on a null GPU.

The label of such an alloc ends with its rule: "aten::convolution [modelled: fft_workspace]".
"""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from allocbench.base.trace import EventArrays
from allocbench.workloads.trace import ALLOC, Trace

_MARK = re.compile(r"\[modelled: (\w+)\]$")


def marked(label: str, rule: str) -> str:
    """The label of an alloc whose size comes from a rule."""
    return f"{label} [modelled: {rule}]".lstrip()


def operator_of(label: str) -> str:
    """A label without the rule of a workspace."""
    return _MARK.sub("", label).rstrip()


def rule_of(label: str) -> str:
    """The rule in a label, or ""."""
    match = _MARK.search(label)
    return match[1] if match else ""


def modelled(trace: Trace) -> dict[str, tuple[int, int]]:
    """The modelled allocs of a trace: rule -> how many there are, and the sum of their bytes."""
    return modelled_in(trace, trace.labels)


def modelled_in(part: EventArrays, labels: Sequence[str]) -> dict[str, tuple[int, int]]:
    """As `modelled`, for a part of a trace with these labels."""
    by_rule = dict[str, tuple[int, int]]()
    if part.label is None:
        return by_rule
    rules = [rule_of(label) for label in labels]
    numbers = {rule: number for number, rule in enumerate(dict.fromkeys(filter(None, rules)))}
    if not numbers:
        return by_rule
    number_of = np.array([numbers.get(rule, -1) for rule in rules])[part.label]
    chosen = (part.op == ALLOC) & (number_of >= 0)
    count = np.bincount(number_of[chosen], minlength=len(numbers))
    total = np.zeros(len(numbers), np.uint64)
    np.add.at(total, number_of[chosen], part.size[chosen])
    for rule, number in numbers.items():
        if count[number]:
            by_rule[rule] = int(count[number]), int(total[number])
    return by_rule


def sentence(by_rule: Mapping[str, tuple[int, int]]) -> str:
    """ "12 allocs of 4,096 bytes are modelled workspaces: fft_workspace 12"; "" for none."""
    if not by_rule:
        return ""
    allocs, total = (sum(column) for column in zip(*by_rule.values(), strict=True))
    rules = ", ".join(f"{rule} {count:,}" for rule, (count, _) in sorted(by_rule.items()))
    return f"{allocs:,} allocs of {total:,} bytes in all are modelled workspaces: {rules}"
