"""Masks and positions from the host, and a small package in the place of transformers."""

import json
import sys
import tempfile
from pathlib import Path

import torch

MASKING = """
def _ignore_causal_mask_sdpa(padding_mask, length):
    return padding_mask is None or bool(padding_mask.all())

def find_packed_sequence_indices(position_ids):
    sequences = (position_ids.diff(dim=-1) != 1).cumsum(-1)
    return None if (sequences[:, -1] == 0).all() else sequences
"""
GENERATION = """
import torch

class StoppingCriteriaList(list):
    max_length = 12
    def __call__(self, input_ids, scores): return input_ids

class GenerationMixin:
    def _has_unfinished_sequences(self, *arguments): return True

    def _beam_search_has_unfinished_sequences(*arguments): return False

    @staticmethod
    def _expand_inputs_for_generation(expand_size=1, input_ids=None, **options):
        mask = options["attention_mask"].repeat_interleave(expand_size, dim=0)
        return input_ids, {"attention_mask": mask}

    def _update_model_kwargs_for_generation(self, outputs, model_kwargs):
        mask = model_kwargs["attention_mask"]
        longer = torch.cat([mask, mask.new_ones((len(mask), 1))], dim=-1)
        return {**model_kwargs, "attention_mask": longer}
"""
with tempfile.TemporaryDirectory() as name:
    folder = Path(name) / "transformers"
    (folder / "generation").mkdir(parents=True)
    for path in (folder, folder / "generation"):
        (path / "__init__.py").touch()
    (folder / "masking_utils.py").write_text(MASKING)
    (folder / "generation" / "utils.py").write_text(GENERATION)
    sys.path.insert(0, name)
    from transformers import masking_utils
    from transformers.generation import utils


def ignored(mask):
    return masking_utils._ignore_causal_mask_sdpa(mask, 8)


def packed(positions):
    return masking_utils.find_packed_sequence_indices(positions) is not None


whole = torch.ones(2, 8, dtype=torch.int64)
part = whole.clone()
part[1, 0] = 0
changed, known = whole.cuda(), whole.to("cuda")
changed[1, 0] = 0
with torch.inference_mode():
    without_versions = whole.to("cuda")
_, grown = utils.GenerationMixin._expand_inputs_for_generation(3, attention_mask=known)
grown = utils.GenerationMixin()._update_model_kwargs_for_generation(None, grown)["attention_mask"]
_, hiding = utils.GenerationMixin._expand_inputs_for_generation(3, attention_mask=part.cuda())
drawn = torch.randint(9, (2, 8), device="cuda")
hidden = drawn.clone().geometric_(0.5)
rising, anew = torch.arange(8)[None], torch.tensor([[0, 1, 2, 0, 1, 0, 1, 2]])
searching, criteria = utils.GenerationMixin(), utils.StoppingCriteriaList()
searched = []
for length in (11, 12):
    criteria(torch.zeros(2, length), None)
    searched.append(searching._beam_search_has_unfinished_sequences(None))
seen = {
    "known": [ignored(mask) for mask in (None, whole, known, without_versions)],
    "converted": [ignored(known.bool()), ignored(known.view(8, 2)), ignored(known.int().cuda())],
    "hiding": [ignored(mask) for mask in (part, part.cuda(), changed, known - 1)],
    "computed": [ignored(known.clone()), ignored(torch.ones_like(hidden)), ignored(hidden < 9)],
    "drawn": [ignored(drawn < 9), ignored(drawn > 9)],
    "bytes": ignored(known.view(torch.uint8)),
    "one sequence": [packed(rising), packed(rising.cuda()), packed(hidden)],
    "packed": [packed(anew), packed(anew.cuda()), packed(anew.to("cuda").long())],
    "grown": [ignored(grown), list(grown.shape), ignored(hiding["attention_mask"])],
    "searched": searched,
}
print(json.dumps(seen))
