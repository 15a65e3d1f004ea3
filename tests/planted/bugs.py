# SPDX-License-Identifier: Apache-2.0
"""The bugs, one of each kind that the tests promise to find."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """An edit of one file, and the tests of which at least one must fail.

    `old` occurs exactly once in the file.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def is_native(self) -> bool:
        return self.file.endswith((".cpp", ".hpp"))


_SEQUENCES = "tests/test_fuzz_sequences.py"
BUGS = (
    Bug(
        "a split block overlaps its remainder by 256 bytes",
        "allocators/native/parts/segment_blocks.hpp",
        "nodes_.create(address + keep, size - keep);",
        "nodes_.create(address + keep - 256, size - keep + 256);",
        (_SEQUENCES,),
    ),
    Bug(
        "free neighbors are not coalesced",
        "allocators/native/parts/segment_blocks.hpp",
        "return neighbor != kNone && !nodes_[neighbor].block.allocated() && !withheld(neighbor);",
        "return false && neighbor != kNone;",
        ("tests/allocators/strategies/test_bfc_placements.py",),
    ),
    Bug(
        "a block is counted twice",
        "allocators/native/core/allocator.cpp",
        "  stats_.requested.subtract(block.requested);\n",
        "  stats_.requested.subtract(block.requested);\n  ++stats_.frees;\n",
        (_SEQUENCES,),
    ),
    Bug(
        "bytes that are freed stay allocated",
        "allocators/native/core/allocator.cpp",
        "  stats_.allocated.subtract(block.size);\n",
        "",
        ("tests/allocators/test_faults.py",),
    ),
    Bug(
        "a lock does not lock",
        "allocators/native/core/lock.hpp",
        "  [[gnu::always_inline]] void lock() {\n",
        "  [[gnu::always_inline]] void lock() {\n    return;\n",
        ("tests/allocators/test_threads.py",),
    ),
    Bug(
        "a request that is larger than the plan follows the stale plan",
        "allocators/native/strategies/arena.cpp",
        "!request.planned || size > request.size || ",
        "!request.planned || ",
        ("tests/allocators/strategies/test_arena.py", _SEQUENCES),
    ),
    Bug(
        "a limit does not count private pools",
        "allocators/native/strategies/bfc.hpp",
        "Size do_room() const override { return memory_limit_ - reserved(); }",
        "",
        ("tests/allocators/test_private_pools.py",),
    ),
    Bug(
        "a refused call is forgotten",
        "allocators/native/core/allocator.cpp",
        "if (segment != 0) count_reserved(size);",
        "count_reserved(size);",
        ("tests/allocators/test_each_refusal.py",),
    ),
    Bug(
        "an output file is written in place",
        "allocbench/base/whole_file.py",
        'target.with_name(f".{target.name}.{os.getpid()}.partial")',
        "target",
        ("tests/commands/test_interrupts.py",),
    ),
    Bug(
        "gzip expands without a limit",
        "workloads/input_files.py",
        "if copy.tell() + len(part) > most:",
        "if False:",
        ("tests/workloads/test_limits.py",),
    ),
    Bug(
        "opcodes that create objects are skipped",
        "workloads/importers/pickles.py",
        '        name, what = _NAMES[op], ""\n',
        '        return  # type: ignore[misc]\n        name, what = _NAMES[op], ""\n',
        ("tests/workloads/importers/test_pickles.py",),
    ),
)
