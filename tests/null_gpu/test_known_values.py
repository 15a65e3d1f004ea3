# SPDX-License-Identifier: Apache-2.0
"""Values that a program reads from a null GPU, and that follow from where it reads them."""

import contextlib
import sys
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from tests.gold import Gold
from tests.null_gpu.test_inside import called, loaded

known_values = loaded("known_values")


def frame_of_caller() -> FrameType:
    frame = sys._getframe().f_back
    assert frame is not None
    return frame


BOXES = [*range(7)]
SAMPLER = SimpleNamespace(batch_size_per_image=6, positive_fraction=0.5)
VARIABLES: dict[str, Any] = {
    "self": SimpleNamespace(
        **vars(SAMPLER), fg_bg_sampler=SAMPLER, detections_per_img=4, topk_candidates=9,
        neg_to_pos_ratio=2.5, _init_scale=65536.0,
    ),
    **dict.fromkeys(
        ("keep", "boxes", "dets", "match_quality_matrix", "scores", "valid", "valid_idxs_per_image",
         "matched_idxs_per_image", "levels", "keep_idxs"), BOXES,
    ),
    "mask": BOXES[:5],
    "sampled_neg_inds": [BOXES, BOXES[:2]],
    "pos_inds_img": [BOXES, BOXES[:2]],
    "labels": [BOXES, BOXES[:3], [], [], BOXES],
    "img_id": 1,
    "level": 1,
    "x_filtered": BOXES[:3],
    "targets": [{"labels": BOXES}, {"labels": BOXES[:2]}],
    "targets_per_image": {"labels": BOXES[:6]},
    "cur_len": 20,
    "decoder_prompt_len": 8,
}  # fmt: skip
LINES = ("x", "positive = y", "sampled_pos_inds", "valid_idxs", "cls_loss[a]", ":output_length",
         ":max_generated_length", "float(loss)", "ys > 1", "abs(gtd_new) <= a")  # fmt: skip


def test_values_that_are_known(gold: Gold) -> None:
    found: dict[str, Any] = {}
    keys = [*known_values._OF_PYTORCH, *known_values._OF_LIBRARIES, ("torch", "elsewhere")]
    for module, name in keys:
        for line in LINES:
            frame = called(module, name, line, frame_of_caller, **VARIABLES)
            number = known_values.in_library(frame.f_back or frame)
            inner = called(module, name, line, lambda: sys._getframe(1), **VARIABLES)
            bits = [
                known_values.in_function(inner, size) if "float(" not in line else None
                for size in (1, 2, 4, 8)
            ]
            found[f"{module} {name} {line}"] = [number, known_values.in_library(inner), bits]
        empty = called(module, name, "x", lambda: sys._getframe(1), self=None)
        found[f"{module} {name}"] = [known_values.in_library(empty)]
    operators = (["add"], ["normal_", "x"], ["repeat_interleave"], ["allclose"])
    found["operators"] = [
        known_values.in_operators(names, size) for names in operators for size in (1, 4)
    ]
    gold("known_values", found)


CHECKS = {
    "assert x": 1,
    "assert x.item(), 'a word'": 1,
    "assert not x": 0,
    "assert y or x": 1,
    "if not x: raise ValueError": 1,
    "if x: raise ValueError(len('two'))": 0,
    "for n in 'ab':\n  if x: continue\n  raise KeyError": 1,
    "if x and y: raise ValueError": None,
    "if x: len('one')\nelse: len('other')": None,
    "n = 1 if x else 2": None,
    "while x: break": None,
    "with memoryview(b''):\n  if x: len('one')": None,
    "try:\n  if x: len('one')\nfinally: pass": None,
    "n = x.item()": None,
}


@pytest.mark.parametrize("source", CHECKS)
@pytest.mark.parametrize("value", [True, False])
def test_a_check_raises_for_one_truth_value(source: str, value: bool) -> None:
    found = []

    class Read:
        def __bool__(self) -> bool:
            caller = sys._getframe(1)
            found.append(known_values.in_check(caller.f_code, caller.f_lasti))
            return value

        item = __bool__

    with contextlib.suppress(Exception):
        exec(source, {"x": Read(), "y": False})
    assert set(found) == {CHECKS[source]}
