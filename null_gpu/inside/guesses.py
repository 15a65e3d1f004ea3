# SPDX-License-Identifier: Apache-2.0
"""Results of operators of PyTorch that the host does not compute from known values.

A mask that the user gave a number of elements has so many. What `topk` selects among few counts as
the choice of a router, which sends tokens evenly to its experts. Indices of a sparse tensor are
distinct, and no index of an embedding is padding. Computed values are finite. `matrix_exp` of
several matrices computes all of them with the same number of terms.

The host draws other random numbers than a GPU would draw. They have the same distribution, so a
mask that hides 15 % of the tokens does so on the host. Like those of a GPU, they follow from the
state of the GPU's generator: with the same seed, a program reads the same numbers again.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from types import ModuleType
from typing import Any

from .following import MOST, MOST_REAL, Finish, Follower, HostCopies, Operator
from .reads import Reads, outside

_MOST_EXPERTS = 512
"""A vocabulary is larger."""
_NO_ROUTER = "transformers.generation."
"""It selects tokens and beams."""


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
        special("topk", self._routed)
        special("isfinite isinf isnan", self._finite)
        special("_coalesce", self._distinct)
        special("embedding_sparse_backward", self._without_padding)
        special("linalg_matrix_exp", self._in_one_group)
        special("bernoulli_ normal_ random_ uniform_", self._drawn_in_place)
        special("multinomial randperm", self._drawn_anew)

    def _selected(self, operator: Operator, values: list[Any]) -> Finish | None:
        if finish := self._follower.computed(operator, values):
            return finish
        (mask,) = values
        if mask.dtype not in (self._torch.bool, self._torch.uint8) or not self._copies.may_have(
            mask
        ):
            return None
        end = self._reads.note_until()

        def finished(_results: list[Any]) -> None:
            if given := end():
                first = self._torch.arange(mask.numel(), device="cpu") < given[-1]
                self._copies.keep(mask, first.reshape(mask.shape).to(mask.dtype))

        return finished

    def _routed(self, operator: Operator, values: list[Any]) -> Finish | None:
        if finish := self._follower.computed(operator, values):
            return finish
        scores, each, dimension = values[:3]
        last, count = scores.dim() - 1, scores.shape[-1] if scores.dim() else 0
        caller = outside(sys._getframe())
        if caller and str(caller.f_globals.get("__name__")).startswith(_NO_ROUTER):
            return None
        if last < 1 or dimension not in (-1, last) or not 0 < each < count <= _MOST_EXPERTS:
            return None

        def finished(results: list[Any]) -> None:
            indices = results[1]
            if self._copies.may_have(indices):
                self._copies.keep(indices, self._chosen(indices.shape, count))

        return finished

    def _chosen(self, shape: Any, count: int) -> Any:
        """Different numbers below `count` for each row, all of them equally often."""
        arange, rows, each = self._torch.arange, shape[:-1].numel(), shape[-1]
        first, others = arange(rows, device="cpu"), arange(each, device="cpu")
        return ((first[:, None] + others * max(count // each, 1)) % count).reshape(shape)

    def _finite(self, operator: Operator, values: list[Any]) -> Finish | None:
        known = self._follower.is_known(values[0]) if values[0].is_cuda else True
        if known:
            return self._follower.computed(operator, values)

        def finished(results: list[Any]) -> None:
            (result,) = results
            if self._copies.may_have(result):
                full = self._torch.full(result.shape, operator.name == "isfinite", device="cpu")
                self._copies.keep(result, full)

        return finished

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
