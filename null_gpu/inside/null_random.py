# SPDX-License-Identifier: Apache-2.0
"""Random numbers: the host draws others in the place of those that a GPU would draw.

They have the same distribution, so a mask that hides 15 % of the tokens does so on the host. Like
those of a GPU, they follow from the state of the GPU's generator: with the same seed, a program
reads the same numbers again.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol


class _Follower(Protocol):
    """`Follower` of null_follow."""

    def can_keep(self, result: Any, **limits: int) -> bool: ...
    def is_whole(self, tensor: Any) -> bool: ...
    def run(self, original: Any, arguments: Any, options: Any) -> Any: ...
    def on_host(self, original: Any, arguments: Any, options: Any) -> Any: ...


class Draws:
    """Replaces functions of PyTorch."""

    def __init__(self, torch: Any, follower: _Follower, copies: Any, most: int) -> None:
        """copies: `HostCopies`. most: real numbers that are drawn from an interval at once."""
        self._torch, self._follower, self._copies = torch, follower, copies
        self._of_interval = {"most_real": most}
        self._generator = torch.Generator()

    def follow(self, functions: Any, names: Any) -> None:
        """Replace the functions that null_names lists. functions: `Functions`."""
        for listed, replaced in (
            (names.DRAWN, self._drawn),
            (names.DRAWN_FROM, self._drawn_from),
            (names.DRAWN_LIKE, self._drawn_like),
            (names.DRAWN_IN_PLACE, self._drawn_in_place),
        ):

            def make(name: str, original: Any, replaced: Any = replaced) -> Any:
                return functions.instead_of(original)(replaced(name, original))

            for name in listed.split():
                functions.replace(name, make)

    def _drawn(self, name: str, original: Any) -> Any:
        limits = self._of_interval if name == "rand" else {}

        def drawn(*arguments: Any, **options: Any) -> Any:
            result = self._follower.run(original, arguments, options)
            self._keep(result, original, arguments, {**options, "device": "cpu"}, **limits)
            return result

        return drawn

    def _drawn_from(self, _name: str, original: Any) -> Any:
        def drawn(*arguments: Any, **options: Any) -> Any:
            result = self._follower.run(original, arguments, options)
            self._keep(result, original, arguments, options)
            return result

        return drawn

    def _drawn_like(self, name: str, original: Any) -> Any:
        draw = getattr(self._torch, name.removesuffix("_like"))
        limits = self._of_interval if name == "rand_like" else {}

        def drawn(like: Any, *arguments: Any, **options: Any) -> Any:
            result = self._follower.run(original, (like, *arguments), options)
            kept = {name: options[name] for name in ("low", "high", "generator") if name in options}
            shaped = {"size": tuple(result.shape), "dtype": result.dtype, "device": "cpu"}
            self._keep(result, draw, arguments, kept | shaped, **limits)
            return result

        return drawn

    def _drawn_in_place(self, _name: str, original: Any) -> Any:
        def drawn(tensor: Any, *arguments: Any, **options: Any) -> Any:
            result = original(tensor, *arguments, **options)
            if self._follower.is_whole(tensor):
                empty = self._torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
                self._keep(tensor, original, (empty, *arguments), options)
            return result

        return drawn

    def _keep(self, result: Any, draw: Any, arguments: Any, options: Any, **limits: int) -> None:
        """Draw on the host what was drawn on the GPU, if the host knows the arguments."""
        if options.get("out") is not None or not self._follower.can_keep(result, **limits):
            return
        used = options.get("generator")
        if used is None:
            used = self._torch.cuda.default_generators[result.device.index]
        state = bytes(used.get_state().tolist())
        seed = hashlib.blake2b(state, digest_size=8).digest()
        self._generator.manual_seed(int.from_bytes(seed, "little"))
        options = {**options, "generator": self._generator}
        values = self._follower.on_host(draw, arguments, options)
        if values is not None:
            self._copies.keep(result, values)
