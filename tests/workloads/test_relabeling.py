# SPDX-License-Identifier: Apache-2.0
"""Labels of a trace under other names."""

import numpy as np

from allocbench.workloads import ALLOC, FREE, MARK
from tests.traces import make


def test_names_are_merged_and_unused_ones_left_out() -> None:
    labels = ("", "aten::add_Tensor", "aten::add", "unused", "init", "aten::mm")
    events = [(MARK, 4, 0), (ALLOC, 0, 8), (ALLOC, 1, 8), (FREE, 0, 0), (ALLOC, 2, 8)]
    label = np.array([0, 1, 2, 0, 5], np.uint32)
    trace = make(events, labels=labels, label=label, module=label[::-1].copy())
    found = trace.relabeled({"aten::add_Tensor": "aten::add", "unused": "init"})
    found.validate()
    assert found.labels == ("", "aten::add", "init", "aten::mm")
    assert found.label is not None
    assert found.label.tolist() == [0, 1, 1, 0, 3]
    assert found.module is not None
    assert found.module.tolist() == [3, 0, 1, 1, 0]
    assert found.block.tolist() == [2, 0, 1, 0, 2]
