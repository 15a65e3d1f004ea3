# SPDX-License-Identifier: Apache-2.0
"""Values that PyTorch and other libraries read from the GPU, and that are known without a kernel.

A check of PyTorch or of the program, which raises an exception for one of two truth values, is
passed: on a real GPU, a program that works passes it too, and tensors that it compares are close.
PyTorch: The scale of a GradScaler is the one that it began with, because it finds no gradient that
is not finite. An optimizer that was loaded from a checkpoint with `map_location="cuda"` keeps its
count of steps on the GPU: Adam and others divide by 1 - beta ** count. LBFGS finds a better loss in
each iteration, so it makes `max_iter` of them, and fills its history.

The detectors of torchvision select boxes by scores, and some of the selected ones at random. The
numbers of boxes are those of a detector that finds as many objects as it may: nothing is too small
or suppressed by a better box, and a sampler takes as many boxes as it is told to. Boxes are spread
evenly over the levels of a pyramid. An object matches one anchor.

`generate()` of transformers reads whether all sequences have ended: on a null GPU no end token is
ever found, and it ends at the maximum length, to which it cuts what a beam search has found. A
model reads whether positions begin anew within a row, as those of packed sequences do. They only do
if the program computed them on the host, because a model itself counts from 0.
"""

from __future__ import annotations

import dis
import functools
import itertools
import linecache
import re
import struct
from collections.abc import Callable, Iterable, Mapping
from types import CodeType, FrameType, ModuleType
from typing import Any

_SINGLE = 4  # bytes of a number in single precision
_FORMATS = {2: "=e", _SINGLE: "=f", 8: "=d"}  # by bytes
_evaluations = itertools.count(1)


def _all_ranks(_size: int, frame: FrameType) -> int | None:
    """How many ranks gave batch normalization some elements."""
    mask = frame.f_locals.get("mask")
    return None if mask is None else len(mask)


def _one(size: int, _frame: FrameType) -> int | None:
    """An optimizer's count of steps, by which it divides. It is a real number, or an older one."""
    return _bits(1.0, size) if size == _SINGLE else 1


def _initial_scale(size: int, frame: FrameType) -> int | None:
    scale = getattr(frame.f_locals.get("self"), "_init_scale", None)
    if size != _SINGLE or scale is None:
        return None
    return _bits(scale, size)


def _improving(size: int, frame: FrameType) -> int | None:
    """What LBFGS reads: a loss below the last one, whether a condition is met, or a factor."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if "float(" in line:
        return _bits(-float(next(_evaluations)), size)
    return int(any(condition in line for condition in _MET))


_MET = ("ys >", "abs(gtd_new) <=")
"""The curvature is positive, and the first point on a line is good enough."""


def _bits(number: float, size: int) -> int | None:
    if size not in _FORMATS:
        return None
    return int.from_bytes(struct.pack(_FORMATS[size], number), "little")


_OF_PYTORCH: Mapping[tuple[str, str], Callable[[int, FrameType], int | None]] = {
    ("torch", "_check_tensor_all_with"): lambda _size, _frame: 1,
    ("torch.nn.modules._functions", "forward"): _all_ranks,
    ("torch.testing._comparison", "_compare_regular_values_close"): lambda _size, _frame: 1,
    ("torch.amp.grad_scaler", "get_scale"): _initial_scale,
    ("torch.amp.grad_scaler", "_maybe_opt_step"): lambda _size, _frame: 0,  # none is infinite
    ("torch.optim.optimizer", "_get_value"): _one,
    ("torch.optim.lbfgs", "step"): _improving,
    ("torch.optim.lbfgs", "_add_grad"): _improving,
    ("torch.optim.lbfgs", "_directional_evaluate"): _improving,
    ("torch.optim.lbfgs", "_strong_wolfe"): _improving,
}
"""By module and function. Arguments: the bytes that are read, and the function's frame."""
_CHECKING = re.compile(r"normal_?$|repeat_interleave|allclose")
"""Operators that read whether their arguments are valid, or as expected."""


def in_operators(names: Iterable[str], size: int) -> int | None:
    """The bits of the value that one of these operators reads; None: not known."""
    return 1 if size == 1 and any(map(_CHECKING.match, names)) else None


def in_function(frame: FrameType, size: int) -> int | None:
    """The bits of the value that a function of PyTorch reads in this frame; None: not known."""
    find = _OF_PYTORCH.get((str(frame.f_globals.get("__name__")), frame.f_code.co_name))
    return find(size, frame) if find else None


@functools.cache
def in_check(code: CodeType, place: int) -> int | None:
    """Which truth value, read at this place, raises no exception at once; None: both."""
    steps = [one for one in dis.get_instructions(code) if one.opname not in _NO_STEPS]
    at = next(n for n, one in enumerate(steps) if one.offset >= place)
    for test in filter(lambda one: _TEST.match(one.opname), steps[at : at + 2]):
        for value in (0, 1):
            first = test.argval if ("TRUE" in test.opname) != value else test.offset + 1
            ends = (one.opname for one in steps if one.offset >= first and _END.match(one.opname))
            if next(ends, "").startswith("RAISE"):
                return value
    return None


_NO_STEPS = ("CACHE", "EXTENDED_ARG", "NOP", "NOT_TAKEN", "PRECALL", "TO_BOOL")
_TEST, _END = re.compile("POP_JUMP.*(TRUE|FALSE)"), re.compile("(RE)?RAISE|RETURN|FOR_ITER|.*JUMP")


def in_library(frame: FrameType) -> int | None:
    """What a function of a library reads in the line that it is at; None: not known."""
    find = _OF_LIBRARIES.get((str(frame.f_globals.get("__name__")), frame.f_code.co_name))
    if find is None:
        return None
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    try:
        return int(find(frame.f_locals, line))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None  # another version of the library


def _all_of(name: str) -> Callable[[Mapping[str, Any], str], int]:
    return lambda found, _line: len(found[name])


def _taken(sampler: Any, count: int) -> tuple[int, int]:
    """How many positive and how many other boxes of an image a sampler takes."""
    most = sampler.batch_size_per_image
    positive = min(int(most * sampler.positive_fraction), count)
    return positive, min(most, count) - positive


def _sampled(found: Mapping[str, Any], line: str) -> int:
    boxes = found["matched_idxs_per_image"]
    positive, _others = _taken(found["self"], len(boxes))
    return positive if "positive =" in line else len(boxes) - positive


def _sampled_anchors(found: Mapping[str, Any], line: str) -> int:
    taken = [_taken(found["self"].fg_bg_sampler, len(mask)) for mask in found["sampled_neg_inds"]]
    return sum(positive if "sampled_pos_inds" in line else other for positive, other in taken)


def _sampled_proposals(found: Mapping[str, Any], _line: str) -> int:
    return sum(_taken(found["self"].fg_bg_sampler, len(found["pos_inds_img"])))


def _objects_of_image(found: Mapping[str, Any], _line: str) -> int:
    count = len(found["labels"][found["img_id"]])
    return int(found["self"].fg_bg_sampler.positive_fraction * count)


def _in_level(found: Mapping[str, Any], _line: str) -> int:
    count, levels = len(found["levels"]), len(found["x_filtered"])
    return count // levels + int(found["level"] < count % levels)


def _anchors(found: Mapping[str, Any], line: str) -> int:
    if "valid_idxs" in line:
        return len(found["valid_idxs_per_image"])
    if "cls_loss[" in line:  # both groups, and the second one is larger
        return int(found["self"].neg_to_pos_ratio * _targets(found, line))
    return len(found["targets_per_image"]["labels"])


def _targets(found: Mapping[str, Any], _line: str) -> int:
    return sum(len(target["labels"]) for target in found["targets"])


def _at_most(limit: str, of: str) -> Callable[[Mapping[str, Any], str], int]:
    """All of some boxes, up to a limit of the detector."""
    return lambda found, _line: min(int(getattr(found["self"], limit)), len(found[of]))


def _found_by_beams(found: Mapping[str, Any], line: str) -> int:
    """The length of the sequences, or of what follows the prompt."""
    prompt = 0 if ":output_length" in line else found["decoder_prompt_len"]
    if ":output_length" not in line and ":max_generated_length" not in line:
        raise ValueError
    return int(found["cur_len"] - prompt)


_DETECTION = "torchvision.models.detection."
_OF_LIBRARIES: Mapping[tuple[str, str], Callable[[Mapping[str, Any], str], int]] = {
    ("torchvision.ops.boxes", "remove_small_boxes"): _all_of("keep"),
    ("torchvision.ops.boxes", "nms"): _all_of("boxes"),
    ("torchvision._autograd_registrations", "_autocast_nms"): _all_of("dets"),
    ("torchvision.ops.poolers", "_multiscale_roi_align"): _in_level,
    (f"{_DETECTION}_utils", "__call__"): _sampled,
    (f"{_DETECTION}_utils", "set_low_quality_matches_"): _all_of("match_quality_matrix"),
    (f"{_DETECTION}rpn", "filter_proposals"): _all_of("scores"),
    (f"{_DETECTION}rpn", "compute_loss"): _sampled_anchors,
    (f"{_DETECTION}roi_heads", "subsample"): _sampled_proposals,
    (f"{_DETECTION}roi_heads", "fastrcnn_loss"): lambda found, _line: (
        len(found["labels"]) // 4  # of the proposals, the usual share; the sampler is not at hand
    ),
    (f"{_DETECTION}roi_heads", "forward"): _objects_of_image,
    (f"{_DETECTION}roi_heads", "keypointrcnn_loss"): _all_of("valid"),
    (f"{_DETECTION}roi_heads", "postprocess_detections"): _at_most("detections_per_img", "scores"),
    (f"{_DETECTION}retinanet", "compute_loss"): _anchors,
    (f"{_DETECTION}retinanet", "postprocess_detections"): _at_most("topk_candidates", "keep_idxs"),
    (f"{_DETECTION}ssd", "compute_loss"): _anchors,
    (f"{_DETECTION}ssd", "postprocess_detections"): _at_most("topk_candidates", "keep_idxs"),
    (f"{_DETECTION}fcos", "compute_loss"): _targets,
    (f"{_DETECTION}fcos", "postprocess_detections"): _at_most("topk_candidates", "keep_idxs"),
    ("transformers.generation.utils", "_beam_search"): _found_by_beams,
}
"""By module and function."""


def end_at_length(utils: ModuleType) -> None:
    """Change `transformers.generation.utils` so that generation ends at its maximum length."""
    criteria, mixin = utils.StoppingCriteriaList, utils.GenerationMixin
    if not hasattr(mixin, "_has_unfinished_sequences"):  # before transformers 4.39
        return
    check, length = criteria.__call__, [0, 0]

    def checked(self: Any, input_ids: Any, scores: Any, **options: Any) -> Any:
        length[:] = input_ids.shape[-1], self.max_length or 0
        return check(self, input_ids, scores, **options)

    def at_end() -> bool:
        now, largest = length
        if ended := 0 < largest <= now:
            length[:] = 0, 0
        return ended

    unfinished = mixin._has_unfinished_sequences

    def is_unfinished(self: Any, *arguments: Any, **options: Any) -> Any:
        return False if at_end() else unfinished(self, *arguments, **options)

    criteria.__call__ = checked
    mixin._has_unfinished_sequences = is_unfinished
    if beams := getattr(mixin, "_beam_search_has_unfinished_sequences", None):
        # from transformers 4.50 on; what it reads would be 0, which ends the search

        def is_searching(*arguments: Any, **options: Any) -> Any:
            return not at_end() if length[1] else beams(*arguments, **options)

        mixin._beam_search_has_unfinished_sequences = staticmethod(is_searching)


def know_packed(masking: ModuleType, is_compiling: Callable[[], bool], copies: Any) -> None:
    """Change `transformers.masking_utils`: positions are those of packed sequences if known.

    copies: HostCopies.
    """
    original = getattr(masking, "find_packed_sequence_indices", None)
    if original is None:
        return

    @functools.wraps(original)
    def found(position_ids: Any) -> Any:
        if is_compiling() or not position_ids.is_cuda or copies.knows(position_ids):
            return original(position_ids)
        return None

    masking.find_packed_sequence_indices = found  # type: ignore[attr-defined]
