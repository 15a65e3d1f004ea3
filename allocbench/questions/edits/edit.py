# SPDX-License-Identifier: Apache-2.0
"""An edit: one change of a program that needs less memory."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

from allocbench.workloads.block_table import BlockTable

_ERRORS = {
    "update": 0.05,
    "state": 0.05,
    "activations": 0.15,
    "batch": 0.15,
    "precision": 0.15,
    "places": 0.05,
    "setting": 0.0,
}
"""Error of the need by family: none where an edit leaves all events as they are, little where it
leaves the order of the others, most where fragmentation depends on an order that is modelled."""
_ERROR = 0.1
"""Error of the other families."""
_BELOW = {"activations": 0.35, "precision": 0.25, "state": 0.1}
"""How much less than the estimate the need may be, where this is more than its error."""


@dataclass(frozen=True, eq=False)
class Edit:
    """One change of a program.

    name: for a table. how: what to change. cost: what it costs besides memory. effort: what it asks
    of the user: 1 an argument, 2 some lines, 3 another way to train, 4 more GPUs, 5 to train other
    parameters. apply: the change of the blocks. made: what makes the change in a program that runs,
    as `edits_hook` reads it; empty if nothing can. setting: of PyTorch's allocator, such as
    "expandable_segments:True". off_by: the error, if it is not that of the family. not_with:
    another family that it excludes. family: what it acts on; two edits of one family exclude each
    other. Default: the name of the function that yields it.
    """

    name: str
    how: str
    cost: str
    effort: int
    apply: Callable[[BlockTable], BlockTable]
    made: Mapping[str, Any] = field(default_factory=dict)
    setting: str = ""
    off_by: float = 0.0
    not_with: str = ""
    family: str = ""

    @property
    def error(self) -> float:
        """How far the need may be off, as a share of the estimate; measured in docs/whatif.md."""
        return self.off_by or _ERRORS.get(self.family, _ERROR)

    @property
    def below(self) -> float:
        """How far the need may be less than the estimate, as a share of it."""
        return max(self.error, _BELOW.get(self.family, 0.0))


def go_together(chosen: Iterable[Edit]) -> bool:
    """Whether no edit excludes another one."""
    return not any(
        one.family in (other.family, other.not_with) or other.family == one.not_with
        for one, other in combinations(chosen, 2)
    )
