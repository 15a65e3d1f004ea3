# SPDX-License-Identifier: Apache-2.0
"""Values that Hugging Face's transformers reads from the GPU although the host knows them.

`generate()` reads whether all sequences have ended: on a null GPU no end token is ever found, and
it ends at the maximum length. A model reads whether its attention mask hides nothing, because it
can then go without: masks mostly come from host memory, where the answer is known. It also reads
whether positions begin anew within a row, as those of packed sequences do. They only do if the
program computed them on the host, because a model itself counts from 0.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

_NOTHING_HIDDEN = "_allocbench_nothing_hidden"
"""An attribute of storages, which views share: type and version of a mask without a zero."""
_BEGINS_ANEW = "_allocbench_begins_anew"
"""The same for whole numbers with a row that does not count up by one."""


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


def extend_masks(utils: ModuleType) -> None:
    """Change `transformers.generation.utils`: masks hide nothing after a token or a beam more."""
    mixin = utils.GenerationMixin
    if expand := getattr(mixin, "_expand_inputs_for_generation", None):

        @functools.wraps(expand)
        def expanded(*arguments: Any, **options: Any) -> Any:
            known = _known_masks(options)
            result = expand(*arguments, **options)
            _mark_known(result[1], known)
            return result

        # in older versions of transformers, a static method
        static = isinstance(inspect.getattr_static(mixin, expand.__name__), staticmethod)
        setattr(mixin, expand.__name__, staticmethod(expanded) if static else expanded)
    if update := getattr(mixin, "_update_model_kwargs_for_generation", None):

        @functools.wraps(update)
        def updated(self: Any, outputs: Any, model_kwargs: Any, *others: Any, **more: Any) -> Any:
            known = _known_masks(model_kwargs)
            result = update(self, outputs, model_kwargs, *others, **more)
            _mark_known(result, known)
            return result

        mixin._update_model_kwargs_for_generation = updated


def _known_masks(options: Mapping[str, Any]) -> list[str]:
    """The names of the masks in a model's options that hide nothing."""
    masks = {name: options.get(name) for name in ("attention_mask", "decoder_attention_mask")}
    return [name for name, mask in masks.items() if mask is not None and _hides_nothing(mask)]


def _mark_known(options: Mapping[str, Any], known: list[str]) -> None:
    for name in known:
        if options[name].is_cuda:
            _mark(options[name])


def know_masks(masking: ModuleType, torch: ModuleType) -> None:
    """Change `transformers.masking_utils` so that what the host knows is not read from the GPU.

    A copy of a mask or of positions to a GPU, and a copy in another type, has the values of the
    original until an operation changes it in place.
    """
    for name in ("to", "cuda", "bool", "int", "long"):
        _watch_copies(torch.Tensor, name, torch.compiler.is_compiling)
    for name in ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa"):
        if original := getattr(masking, name, None):
            setattr(masking, name, _without_known(original, torch.compiler.is_compiling))
    name = "find_packed_sequence_indices"
    if original := getattr(masking, name, None):
        setattr(masking, name, _packed_if_known(original, torch.compiler.is_compiling))


def _watch_copies(kind: Any, name: str, is_compiling: Callable[[], bool]) -> None:
    original = getattr(kind, name)

    @functools.wraps(original)
    def copied(self: Any, *arguments: Any, **options: Any) -> Any:
        copy = original(self, *arguments, **options)
        if is_compiling():  # the tensors have no values
            return copy
        if type(copy) is kind and copy.is_cuda and copy is not self and _is_whole_matrix(self):
            if _hides_nothing(self):
                _mark(copy)
            if _begins_anew(self):
                _mark(copy, _BEGINS_ANEW)
        return copy

    setattr(kind, name, copied)


def _mark(tensor: Any, fact: str = _NOTHING_HIDDEN) -> None:
    """Note a fact about a tensor on the GPU: by default, that this mask hides nothing."""
    setattr(tensor.untyped_storage(), fact, _type_and_version(tensor))


def _is_marked(tensor: Any, fact: str) -> bool:
    known = getattr(tensor.untyped_storage(), fact, None)
    return bool(known == _type_and_version(tensor))


def _is_whole_matrix(tensor: Any) -> bool:
    """Whether it has two dimensions, and numbers that are whole or truth values."""
    return bool(tensor.dim() == 2 and not tensor.is_floating_point() and not tensor.is_complex())


def _hides_nothing(mask: Any) -> bool:
    """Whether a tensor of two dimensions and whole numbers has no zero, as far as is known."""
    if not _is_whole_matrix(mask):
        return False
    if mask.is_cuda:
        return _is_marked(mask, _NOTHING_HIDDEN)
    return mask.device.type == "cpu" and bool(mask.all())


def _begins_anew(positions: Any) -> bool:
    """Whether a row of whole numbers is known not to count up by one."""
    if positions.is_cuda:
        return _is_marked(positions, _BEGINS_ANEW)
    if positions.device.type != "cpu" or str(positions.dtype) == "torch.bool":
        return False
    return bool((positions.diff(dim=-1) != 1).any())


def _type_and_version(tensor: Any) -> tuple[Any, int]:
    """The type, and how often it was changed in place: PyTorch does not count in inference mode."""
    return tensor.dtype, 0 if tensor.is_inference() else tensor._version


def _without_known(original: Any, is_compiling: Callable[[], bool]) -> Any:
    """The function, which is told no mask in place of one that hides nothing."""

    @functools.wraps(original)
    def ignored(padding_mask: Any, *arguments: Any, **options: Any) -> Any:
        if is_compiling() or padding_mask is None or not padding_mask.is_cuda:
            return original(padding_mask, *arguments, **options)
        if _hides_nothing(padding_mask):
            padding_mask = None
        return original(padding_mask, *arguments, **options)

    return ignored


def _packed_if_known(original: Any, is_compiling: Callable[[], bool]) -> Any:
    """The function, which finds no packed sequences in positions unless they are known."""

    @functools.wraps(original)
    def found(position_ids: Any) -> Any:
        if is_compiling() or not position_ids.is_cuda or _begins_anew(position_ids):
            return original(position_ids)
        return None

    return found
