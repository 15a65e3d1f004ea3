# SPDX-License-Identifier: Apache-2.0
"""Values that functions of other libraries read from the GPU, and that their arguments bound.

The detectors of torchvision select boxes by scores, and some of the selected ones at random. The
numbers of boxes are those of a detector that finds as many objects as it may: nothing is too small
or suppressed by a better box, and a sampler takes as many boxes as it is told to. Boxes are spread
evenly over the levels of a pyramid. An object matches one anchor.

`generate()` of transformers cuts what a beam search has found at its length, which is the maximum
because no end token is found.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any


def known(frame: FrameType) -> int | None:
    """What a function reads from the GPU in the line that it is at; None: not known."""
    find = _KNOWN.get((str(frame.f_globals.get("__name__")), frame.f_code.co_name))
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


def _objects(found: Mapping[str, Any], _line: str) -> int:
    """Of the proposals that were sampled in the images of a batch."""
    return len(found["labels"]) // 4  # the usual share; the sampler is not at hand


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
        ratio = found["self"].neg_to_pos_ratio
        return int(ratio * sum(len(target["labels"]) for target in found["targets"]))
    return len(found["targets_per_image"]["labels"])


def _matched(found: Mapping[str, Any], _line: str) -> int:
    return sum(len(target["labels"]) for target in found["targets"])


def _detected(found: Mapping[str, Any], _line: str) -> int:
    return min(int(found["self"].detections_per_img), len(found["scores"]))


def _candidates(found: Mapping[str, Any], _line: str) -> int:
    return min(int(found["self"].topk_candidates), len(found["keep_idxs"]))


def _found_by_beams(found: Mapping[str, Any], line: str) -> int:
    """The length of the sequences, or of what follows the prompt."""
    prompt = 0 if ":output_length" in line else found["decoder_prompt_len"]
    if ":output_length" not in line and ":max_generated_length" not in line:
        raise ValueError
    return int(found["cur_len"] - prompt)


_DETECTION = "torchvision.models.detection."
_KNOWN: Mapping[tuple[str, str], Callable[[Mapping[str, Any], str], int]] = {
    ("torchvision.ops.boxes", "remove_small_boxes"): _all_of("keep"),
    ("torchvision.ops.boxes", "nms"): _all_of("boxes"),
    ("torchvision._autograd_registrations", "_autocast_nms"): _all_of("dets"),
    ("torchvision.ops.poolers", "_multiscale_roi_align"): _in_level,
    (f"{_DETECTION}_utils", "__call__"): _sampled,
    (f"{_DETECTION}_utils", "set_low_quality_matches_"): _all_of("match_quality_matrix"),
    (f"{_DETECTION}rpn", "filter_proposals"): _all_of("scores"),
    (f"{_DETECTION}rpn", "compute_loss"): _sampled_anchors,
    (f"{_DETECTION}roi_heads", "subsample"): _sampled_proposals,
    (f"{_DETECTION}roi_heads", "fastrcnn_loss"): _objects,
    (f"{_DETECTION}roi_heads", "forward"): _objects_of_image,
    (f"{_DETECTION}roi_heads", "keypointrcnn_loss"): _all_of("valid"),
    (f"{_DETECTION}roi_heads", "postprocess_detections"): _detected,
    (f"{_DETECTION}retinanet", "compute_loss"): _anchors,
    (f"{_DETECTION}retinanet", "postprocess_detections"): _candidates,
    (f"{_DETECTION}ssd", "compute_loss"): _anchors,
    (f"{_DETECTION}ssd", "postprocess_detections"): _candidates,
    (f"{_DETECTION}fcos", "compute_loss"): _matched,
    (f"{_DETECTION}fcos", "postprocess_detections"): _candidates,
    ("transformers.generation.utils", "_beam_search"): _found_by_beams,
}
"""By module and function."""
