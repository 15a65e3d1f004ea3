# SPDX-License-Identifier: Apache-2.0
"""Random numbers: the host draws others in the place of those that a GPU would draw.

They have the same distribution, so a mask that hides 15 % of the tokens does so on the host. Like
those of a GPU, they follow from the state of the GPU's generator: with the same seed, a program
reads the same numbers again.
"""

from __future__ import annotations

import ctypes
import hashlib
from types import ModuleType
from typing import Any

from .following import Finish, Follower, Operator
from .host_copies import MOST, MOST_REAL, HostCopies

_IN_PLACE = "bernoulli_ normal_ random_ uniform_"
_NEW = "multinomial randperm"


class Draws:
    """Operators that draw."""

    def __init__(
        self, torch: ModuleType, core: ctypes.CDLL, follower: Follower, copies: HostCopies
    ) -> None:
        self._torch, self._core, self._follower, self._copies = torch, core, follower, copies
        self._generator = torch.Generator(device="cpu")

    def follow(self) -> None:
        """Have the follower ask for them."""
        self._follower.special(_IN_PLACE, self._in_place)
        self._follower.special(_NEW, self._new)

    def _in_place(self, operator: Operator, values: list[Any]) -> Finish | None:
        tensor, *others = values
        # `rand` consists of `empty` and `uniform_`.
        within_another = operator.name == "uniform_" and self._core.null_depth() > 1
        if not self._copies.may_have(tensor, MOST if within_another else MOST_REAL):
            return None
        if not tensor.is_cuda or not self._follower.is_known(others):
            return None

        def finish(_results: list[Any]) -> None:
            host = self._torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
            given = [host, *self._follower.on_host(others)]
            self._copies.keep(tensor, self._drawn(operator, given, tensor))

        return finish

    def _new(self, operator: Operator, values: list[Any]) -> Finish | None:
        if any(operator.out) or not self._follower.is_known(values):
            return None

        def finish(results: list[Any]) -> None:
            (result,) = results
            if self._copies.may_have(result):
                given = self._follower.on_host(values)
                self._copies.keep(result, self._drawn(operator, given, result))

        return finish

    def _drawn(self, operator: Operator, arguments: list[Any], there: Any) -> Any:
        """What an operator draws on the host, with these arguments, for a tensor on the GPU."""
        given = [value for value in arguments if isinstance(value, self._torch.Generator)]
        used = given[0] if given else self._torch.cuda.default_generators[there.device.index]
        state = bytes(used.get_state().tolist())
        seed = hashlib.blake2b(state, digest_size=8).digest()
        self._generator.manual_seed(int.from_bytes(seed, "little"))
        names = [argument.name for argument in operator.function._schema.arguments]
        if "generator" in names:
            arguments[names.index("generator")] = self._generator
            return operator.call(arguments)
        packet = getattr(self._torch.ops.aten, operator.name)  # another overload has a generator
        named = dict(zip(names, arguments, strict=True)) | {"generator": self._generator}
        return packet(named.pop(names[0]), **named)
