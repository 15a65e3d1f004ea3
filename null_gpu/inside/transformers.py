# SPDX-License-Identifier: Apache-2.0
"""Values that Hugging Face's transformers reads from the GPU although they are known.

`generate()` reads whether all sequences have ended: on a null GPU no end token is ever found, and
it ends at the maximum length. A model reads whether positions begin anew within a row, as those of
packed sequences do. They only do if the program computed them on the host, because a model itself
counts from 0.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


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
