# SPDX-License-Identifier: Apache-2.0
"""The experts that a router selects by scores, which a null GPU does not compute.

Tokens count as sent evenly to all experts. What `topk` selects among few counts as such a choice.
"""

from __future__ import annotations

from typing import Any

_MOST = 512
"""Experts. A vocabulary is larger."""


def send_evenly(torch: Any, functions: Any, follower: Any, copies: Any) -> None:
    """Replace `topk`.

    functions, follower, copies: `Functions`, `Follower` and `HostCopies` of the modules beside this
    one.
    """

    def chosen(shape: Any, count: int) -> Any:
        """Different numbers below `count` for each row, all of them equally often."""
        rows, each = shape[:-1].numel(), shape[-1]
        first, step = torch.arange(rows, device="cpu"), max(count // each, 1)
        others = torch.arange(each, device="cpu") * step
        return ((first[:, None] + others) % count).reshape(shape)

    def replaced(_name: str, original: Any) -> Any:
        def topk(*arguments: Any, **options: Any) -> Any:
            result = follower.run(original, arguments, options)
            scores = arguments[0] if arguments else options["input"]
            last = scores.dim() - 1
            dimension = arguments[2] if len(arguments) > 2 else options.get("dim", -1)
            if last < 1 or dimension not in (-1, last) or options.get("out") is not None:
                return result
            indices, count = result[1], scores.shape[-1]
            few = 0 < indices.shape[-1] < count <= _MOST
            if few and follower.can_keep(indices) and not copies.knows(indices):
                copies.keep(indices, chosen(indices.shape, count))
            return result

        return functions.instead_of(original)(topk)

    functions.replace("topk", replaced)
