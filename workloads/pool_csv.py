# SPDX-License-Identifier: Apache-2.0
"""The columns of a CSV trace with private pools: op,id,size,stream,pool. docs/formats.md has them.

op,id,size,stream,pool
pool_create,use_on_oom,,,0.1
pool_enter,,,,0.1
a,0,4096,0,0.1
pool_leave,,,,0.1
f,0,,0,
trim,,,,
"""

from collections.abc import Callable, Iterator
from typing import NoReturn

from allocbench.workloads.csv_dialect import short, whole_number
from allocbench.workloads.trace import ALLOC, FREE, TRIM, PrivatePool, Trace
from allocbench.workloads.vocabulary import MOST_POOLS, POOL_CREATE, POOL_EVENTS, POOL_TRAITS

HEADER = "op,id,size,stream,pool"
_LAST_STREAM = 2**16 - 1
_OPS = {op: word for word, op in POOL_EVENTS.items()} | {TRIM: "trim"}


def rows_with_pools(trace: Trace) -> Iterator[str]:
    """The lines of a trace with private pools; marks have none."""
    assert trace.pool is not None
    names = [pool.name for pool in trace.pools]
    plain = len(set(names)) == len(names) and all(
        name and name.isprintable() and not set(name) & set(',"; \t|') for name in names
    )
    names = ["", *(names if plain else map(str, range(1, len(names) + 1)))]
    created = set[int]()
    yield f"{HEADER}\n"
    # Traits are told where a pool is made, or first of all where the trace lacks that.
    early = {number for number, pool in enumerate(trace.pools, 1) if pool.traits}
    early -= set(trace.pool[trace.op == POOL_CREATE].tolist())
    for number in sorted(early):
        yield f"pool_create,{' '.join(trace.pools[number - 1].traits)},,,{names[number]}\n"
    columns = (trace.op, trace.block, trace.size, trace.stream, trace.pool)
    for op, block, size, stream, pool in zip(*(c.tolist() for c in columns), strict=True):
        if op == ALLOC:
            yield f"a,{block},{size},{stream},{names[pool]}\n"
        elif op == FREE:
            yield f"f,{block},,{stream},\n"
        elif op in _OPS:
            fields = (
                " ".join(trace.pools[pool - 1].traits)
                if op == POOL_CREATE and pool not in created
                else ""
            )
            created.add(pool)
            yield f"{_OPS[op]},{fields},,,{names[pool]}\n"


class PoolColumns:
    """Reads the columns stream and pool of rows, and collects the pools.

    refuse: raises TraceError for the current row, given what is wrong and what was expected.
    """

    def __init__(self, delimiter: str, refuse: Callable[[str, str], NoReturn]) -> None:
        self._delimiter, self._refuse = delimiter, refuse
        self._numbers = {"": 0}
        self._traits: dict[int, set[str]] = {}

    def stream(self, text: str) -> int:
        """The number of a stream; 0 for an empty field."""
        number = whole_number(text, self._delimiter) if text else 0
        if number is None or number > _LAST_STREAM:
            self._refuse(
                f"stream '{short(text)}' is not a number from 0 to {_LAST_STREAM}", "such a number"
            )
        return number

    def pool(self, name: str) -> int:
        """The number of a pool by its name; 0 for an empty field."""
        number = self._numbers.setdefault(name, len(self._numbers))
        if number > MOST_POOLS:
            self._refuse(f"private pool number {number}", f"at most {MOST_POOLS} private pools")
        return number

    def event(self, word: str, text: str, name: str) -> int:
        """The op of a trim or of an event of a pool; `text` is its field id, `name` the pool."""
        op, number = POOL_EVENTS.get(word, TRIM), self.pool(name)
        if op != TRIM and number == 0:
            self._refuse("the pool is missing", f"{word} with a name in the column pool")
        traits = set(text.split())
        if traits and (op != POOL_CREATE or traits - set(POOL_TRAITS)):
            self._refuse(
                f"'{short(text)}' is in the column id",
                f"nothing, or for pool_create {' or '.join(POOL_TRAITS)}",
            )
        self._traits.setdefault(number, set()).update(traits)
        return op

    @property
    def pools(self) -> tuple[PrivatePool, ...]:
        """The pools 1, 2, and so on."""
        return tuple(
            PrivatePool(
                name, **{trait: trait in self._traits.get(number, ()) for trait in POOL_TRAITS}
            )
            for name, number in list(self._numbers.items())[1:]
        )
