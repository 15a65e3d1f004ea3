# SPDX-License-Identifier: Apache-2.0
"""Results of operators of PyTorch that the host does not compute from known values.

A mask that the user gave a number of elements has so many; another one has a share of them, and so
do its sums. What `topk`, `argmax` and others choose differs from row to row and from call to call:
a router sends tokens evenly to its experts, beams are distinct, and tokens come from the middle of
a vocabulary, where no end token is. A count that is clamped from below is at its limit. Indices of
a sparse tensor are distinct, and no index of an embedding is padding. Computed values are finite.
`matrix_exp` of several matrices computes all of them with the same number of terms.

The host draws other random numbers than a GPU would draw. They have the same distribution, so a
mask that hides 15 % of the tokens does so on the host. Like those of a GPU, they follow from the
state of the GPU's generator: with the same seed, a program reads the same numbers again.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .following import MOST, MOST_REAL, Finish, Follower, HostCopies, Operator
from .reads import Reads, selecting

_MOST_EXPERTS = 512
"""A vocabulary is larger."""
_STRIDE = 7919
"""A prime: choices of successive calls are so far apart."""


class Guesses:
    """Operators that are not only computed."""

    def __init__(
        self,
        torch: ModuleType,
        core: ctypes.CDLL,
        follower: Follower,
        copies: HostCopies,
        reads: Reads,
    ) -> None:
        self._torch, self._core = torch, core
        self._follower, self._copies, self._reads = follower, copies, reads
        self._generator = torch.Generator(device="cpu")

    def follow(self) -> None:
        """Have the follower ask for them."""
        special = self._follower.special
        special("nonzero", self._selected)
        special("count_nonzero sum", self._counted, counting=True)
        special("clamp clamp_min", self._clamped, counting=True)
        special("argmax argmin max min sort topk", self._chosen)
        special("isfinite isinf isnan", self._finite)
        special("_coalesce", self._distinct)
        special("embedding_sparse_backward", self._without_padding)
        special("linalg_matrix_exp", self._in_one_group)
        special("bernoulli_ normal_ random_ uniform_", self._drawn_in_place)
        special("multinomial randperm", self._drawn_anew)
        self._calls = itertools.count()

    def _selected(self, operator: Operator, values: list[Any]) -> Finish | None:
        if finish := self._follower.computed(operator, values):
            return finish
        (mask,) = values
        end, end_usual = self._reads.note_until(), self._reads.usually_until(mask.numel())

        def finished(results: list[Any]) -> None:
            end_usual()
            if (given := end()) and self._is_mask(mask):
                known = self._with_share(mask, given[-1])
                self._copies.keep(mask, known)
                self._copies.keep(results[0], known.nonzero())

        return finished

    def _is_mask(self, tensor: Any) -> bool:
        """Whether a tensor on the GPU is a small one of truth values."""
        is_mask = tensor.dtype in (self._torch.bool, self._torch.uint8)
        return is_mask and self._copies.may_have(tensor)

    def _with_share(self, mask: Any, count: int) -> Any:
        """A mask on the host, like one on the GPU, that selects so many elements."""
        return selecting(self._torch, count, mask.numel()).reshape(mask.shape).to(mask.dtype)

    def _counted(self, operator: Operator, values: list[Any]) -> Finish | None:
        """How many elements an unknown mask has."""
        if finish := self._follower.computed(operator, values):
            return finish
        mask = values[0]
        if mask.dtype != self._torch.bool or any(operator.out):
            return None

        def finished(results: list[Any]) -> None:
            (result,) = results
            if self._is_mask(mask):
                known = self._with_share(mask, int(mask.numel() * self._reads.share))
                self._copies.keep(mask, known)
                self._copies.keep(result, operator.call([known, *values[1:]]))
            elif self._copies.may_have(result):
                each = mask.numel() // max(result.numel(), 1)
                count = int(each * self._reads.share)
                self._copies.keep(result, self._full(result, count))

        return finished

    def _clamped(self, operator: Operator, values: list[Any]) -> Finish | None:
        if finish := self._follower.computed(operator, values):
            return finish
        least = values[1] if len(values) > 1 else None
        if any(operator.out) or not isinstance(least, int) or least <= 0:
            return None
        return self._filled(least)

    def _filled(self, value: float) -> Finish:
        """Note one value for all elements of the only result."""
        return self._made(lambda result: self._full(result, value))

    def _made(self, make: Callable[[Any], Any]) -> Finish:
        """Note what a function makes of the only result."""

        def finished(results: list[Any]) -> None:
            (result,) = results
            if self._copies.may_have(result):
                self._copies.keep(result, make(result))

        return finished

    def _full(self, like: Any, value: float) -> Any:
        return self._torch.full(like.shape, value, dtype=like.dtype, device="cpu")

    def _chosen(self, operator: Operator, values: list[Any]) -> Finish | None:
        """Indices that depend on computed values."""
        if finish := self._follower.computed(operator, values):
            return finish
        names = [argument.name for argument in operator.function._schema.arguments]
        given = dict(zip(names, values, strict=True))
        scores, dimension = values[0], given.get("dim", -1)
        if operator.name in ("max", "min") and operator.results < 2:
            return None
        count = scores.numel() if dimension is None else scores.shape[dimension]

        def finished(results: list[Any]) -> None:
            indices = results[-1]
            if not self._copies.may_have(indices) or not count:
                return
            each = 1
            if indices.dim() == scores.dim() and dimension is not None:
                each = indices.shape[dimension]
                indices = indices.movedim(dimension, -1)
            known = self._spread(indices.shape, each, count)
            self._copies.keep(indices, known)

        return finished

    def _spread(self, shape: Any, each: int, count: int) -> Any:
        """Different numbers below `count` for each row, all of them equally often."""
        arange, rows = self._torch.arange, shape.numel() // max(each, 1)
        low, room = 0, count
        if count > _MOST_EXPERTS and each <= count // 2:
            low, room = count // 4, count // 2
        first, others = arange(min(rows, room), device="cpu"), arange(each, device="cpu")
        if each == 1:
            first = first + next(self._calls)
        elif rows * each < count <= _MOST_EXPERTS:
            first = first + count // each // 2  # 0 is often none: a background, no frequency
        if count > _MOST_EXPERTS:
            first = first * _STRIDE
        step = max(room // max(each, 1), 1)
        found = low + (first[:, None] + others * step) % room
        if rows > room:  # the rows repeat
            found = found.repeat(-(-rows // room), 1)[:rows]
        return found.reshape(shape)

    def _finite(self, operator: Operator, values: list[Any]) -> Finish | None:
        computed = self._follower.computed(operator, values)
        return computed or self._filled(operator.name == "isfinite")

    def _distinct(self, _operator: Operator, values: list[Any]) -> Finish | None:
        (tensor,) = values
        indices = tensor._indices()
        known = self._copies.get(indices)
        if known is not None:
            end = self._reads.answer_until([known.unique(dim=1).shape[1]])
        else:
            end = self._reads.assume_until(indices.shape[1])
        return lambda _results: end()

    def _without_padding(self, _operator: Operator, values: list[Any]) -> Finish | None:
        indices = values[1]
        if self._copies.knows(indices):
            return None  # its operators are computed
        end = self._reads.answer_until([indices.numel()])
        return lambda _results: end()

    def _in_one_group(self, _operator: Operator, values: list[Any]) -> Finish | None:
        (matrices,) = values
        if matrices.dim() < 3:
            return None
        end = self._reads.answer_until([1, matrices.shape[:-2].numel()])  # groups, matrices in it
        return lambda _results: end()

    def _drawn_in_place(self, operator: Operator, values: list[Any]) -> Finish | None:
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

    def _drawn_anew(self, operator: Operator, values: list[Any]) -> Finish | None:
        if any(operator.out):
            return None
        if not self._follower.is_known(values):
            return self._chosen(operator, values)
        on_host = self._follower.on_host
        return self._made(lambda result: self._drawn(operator, on_host(values), result))

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
