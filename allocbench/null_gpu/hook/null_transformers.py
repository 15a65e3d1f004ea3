# SPDX-License-Identifier: Apache-2.0
"""Values that Hugging Face's transformers reads from the GPU although the host knows them.

`generate()` reads whether all sequences have ended: on a null GPU no end token is ever found, and
it ends at the maximum length. A model reads whether its attention mask hides nothing, because it
can then go without: masks mostly come from host memory, where the answer is known.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

_NOTHING_HIDDEN = "_allocbench_nothing_hidden"
"""An attribute of storages, which views share: type and version of a mask without a zero."""


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
    """Change `transformers.masking_utils` so that masks from the host are not read from the GPU.

    A copy of a mask to a GPU, and a copy in another type, has the values of the original until
    an operation changes it in place.
    """
    for name in ("to", "cuda", "bool", "int", "long"):
        _watch_copies(torch.Tensor, name, torch.compiler.is_compiling)
    for name in ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa"):
        if original := getattr(masking, name, None):
            setattr(masking, name, _without_known(original, torch.compiler.is_compiling))


def _watch_copies(kind: Any, name: str, is_compiling: Callable[[], bool]) -> None:
    original = getattr(kind, name)

    @functools.wraps(original)
    def copied(self: Any, *arguments: Any, **options: Any) -> Any:
        copy = original(self, *arguments, **options)
        if is_compiling():  # the tensors have no values
            return copy
        if type(copy) is kind and copy.is_cuda and copy is not self and _hides_nothing(self):
            _mark(copy)
        return copy

    setattr(kind, name, copied)


def _mark(mask: Any) -> None:
    """Note that a mask on the GPU hides nothing."""
    setattr(mask.untyped_storage(), _NOTHING_HIDDEN, _type_and_version(mask))


def _hides_nothing(mask: Any) -> bool:
    """Whether a tensor of two dimensions and whole numbers has no zero, as far as is known."""
    if mask.dim() != 2 or mask.is_floating_point() or mask.is_complex():
        return False
    if mask.is_cuda:
        known = getattr(mask.untyped_storage(), _NOTHING_HIDDEN, None)
        return bool(known == _type_and_version(mask))
    return mask.device.type == "cpu" and bool(mask.all())


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
