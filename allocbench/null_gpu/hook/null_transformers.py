# SPDX-License-Identifier: Apache-2.0
"""`generate()` of Hugging Face's transformers ends at the maximum length, which the host knows.

It reads from the GPU whether all sequences have ended. On a null GPU no end token is ever found.
"""

from __future__ import annotations

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

    unfinished = mixin._has_unfinished_sequences

    def is_unfinished(self: Any, *arguments: Any, **options: Any) -> Any:
        now, largest = length
        if largest and now >= largest:
            length[:] = 0, 0
            return False
        return unfinished(self, *arguments, **options)

    criteria.__call__ = checked
    mixin._has_unfinished_sequences = is_unfinished
