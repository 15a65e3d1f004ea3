# SPDX-License-Identifier: Apache-2.0
"""The bugs: at least one for each kind of check that docs/trust.md names."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Bug:
    """An edit of one file, and the tests that must fail because of it.

    `old` occurs exactly once in the file. `reason` is a regular expression for what a failing test
    says, or that one failed. `sanitize` is what -fsanitize takes, for a bug that only a sanitizer
    finds reliably.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    reason: str = "^FAILED"
    sanitize: str = ""


def _sequence(spec: str) -> tuple[str, ...]:
    return (f"tests/test_fuzz_sequences.py::test_no_sequence_breaks_a_rule[{spec}]",)


BUGS = (
    Bug(
        "the rest of a split block begins one byte too early",
        "allocators/native/parts/segment_blocks.hpp",
        "nodes_.create(address + keep, size - keep)",
        "nodes_.create(address + keep - 1, size - keep + 1)",
        _sequence("tlsf"),
        "the blocks of a segment follow one another from its begin to its end",
    ),
    Bug(
        "a freed block does not coalesce with the next one",
        "allocators/native/parts/segment_blocks.hpp",
        "nodes_[node].next; joins(next))",
        "nodes_[node].next; false && joins(next))",
        _sequence("tlsf"),
        "free neighbors have coalesced",
    ),
    Bug(
        "a free is counted twice",
        "allocators/native/core/allocator.cpp",
        "    ++stats_.frees;\n",
        "    stats_.frees += 2;\n",
        _sequence("naive"),
        "served, freed and refused requests are counted",
    ),
    Bug(
        "freed bytes stay allocated",
        "allocators/native/core/allocator.cpp",
        "    stats_.allocated.subtract(block.size);\n",
        "",
        (
            "tests/allocators/test_private_pools.py"
            "::test_segments_of_a_private_pool_go_back_when_it_is_released[tlsf]",
        ),
        "allocated bytes equal the sum over the blocks",
    ),
    Bug(
        "bytes that the device refused are counted as reserved",
        "allocators/native/core/allocator.cpp",
        "  if (segment != 0) count_reserved(size);\n",
        "  count_reserved(size);\n",
        ("tests/allocators/test_each_refusal.py::test_each_call_refused_in_turn[bfc-training]",),
        "reserved bytes equal the sum over the segments",
    ),
    Bug(
        "a free list hands out a block and keeps it",
        "allocators/native/strategies/free_lists.hpp",
        "  heads_[list] = slices_[slice].next;\n",
        "",
        ("tests/allocators/test_long.py::test_a_million_random_events_break_no_rule[free_lists]",),
        "check: free_lists: the block of request .* overlaps the block of request",
    ),
    Bug(
        "idle buffers are not returned to the device",
        "allocators/native/strategies/free_lists.hpp",
        "if (buffer.size == 0 || buffer.live > 0) continue;",
        "if (buffer.size == 0 || buffer.live > 0 || buffer.used > 0) continue;",
        _sequence("free_lists"),
        "everything goes back to the device at the end",
    ),
    Bug(
        "a request that is larger than planned gets the planned place",
        "allocators/native/strategies/arena.hpp",
        "!request.planned || size > request.size || ",
        "!request.planned || ",
        (
            "tests/allocators/strategies/test_arena.py"
            "::test_a_request_that_the_plan_cannot_hold_falls_back",
        ),
        "a live block is inside one segment",
    ),
    Bug(
        "a memory limit counts each private pool alone",
        "allocators/native/strategies/bfc.hpp",
        "Size do_room() const override { return memory_limit_ - reserved(); }",
        "",
        (
            "tests/allocators/test_private_pools.py"
            "::test_a_limit_holds_for_all_pools_together[pools0-bfc:memory_limit=32MiB]",
        ),
        r"assert \d+ <= \(32 \* 1048576\)",
    ),
    Bug(
        "a rest of 512 bytes stays in the block",
        "allocators/native/strategies/caching.hpp",
        "rest >= PytorchSettings::kRounding",
        "rest > PytorchSettings::kRounding",
        ("tests/allocators/strategies/test_placements.py",),
        "test_block_for_block",
    ),
    Bug(
        "a free does not take the lock",
        "allocators/native/core/allocator.cpp",
        "Block Allocator::free(Address address, Stream stream) {\n"
        "  Lock::Guard const guard(lock_);\n",
        "Block Allocator::free(Address address, Stream stream) {\n",
        ("tests/allocators/test_threads.py::test_replays_in_threads_add_up[bfc]",),
        "WARNING: ThreadSanitizer: data race",
        "thread",
    ),
    Bug(
        "a record of a freed block is used after it was erased",
        "allocators/native/wrappers/check.hpp",
        "    freed_[address] = live.request;\n    live_.erase(entry);\n",
        "    live_.erase(entry);\n    freed_[address] = entry->second.request;\n",
        ("tests/allocators/test_wrappers.py::test_invalid_frees_are_distinguished",),
        "AddressSanitizer: heap-use-after-free",
        "address,undefined",
    ),
    Bug(
        "a number of a snapshot is read past the end of the data",
        "workloads/native/pickle.cpp",
        "  while (data_.size() - at_ < bytes)\n    if (!refill()) cut();\n",
        "  if (data_.size() - at_ < bytes) refill();\n",
        ("tests/workloads/importers/test_pickles.py::test_a_snapshot_cut_off_anywhere_is_refused",),
        "AddressSanitizer: heap-buffer-overflow",
        "address,undefined",
    ),
    Bug(
        "the planner places blocks that live longest first",
        "allocators/native/planners/fast_planners.cpp",
        "std::tie(right.size, left.first, b) < std::tie(left.size, right.first, a)",
        "std::tie(left.first, right.size, b) < std::tie(right.first, left.size, a)",
        ("tests/allocators/planners/test_rules.py",),
        "test_offsets_follow_the_rule",
    ),
    Bug(
        "a file is written in place",
        "allocbench/base/files.py",
        'target.with_name(f".{target.name[:_SHOWN]}.{secrets.token_hex(8)}.partial")',
        "target",
        (
            "tests/commands/test_interrupts.py"
            "::test_a_file_that_is_being_written_leaves_nothing_behind",
        ),
        "No such file or directory|before|File exists",
    ),
    Bug(
        "the unfinished line of a killed sweep stays in its file",
        "allocbench/sweeps/file.py",
        "                text.truncate(end)\n",
        "                text.seek(0, 2)\n",
        (
            "tests/sweeps/test_sweep.py::"
            "test_a_sweep_that_was_ended_leaves_no_worker_and_resumes_without_duplicates[9--9]",
        ),
        "JSONDecodeError|not a sweep result",
    ),
    Bug(
        "SIGTERM ends a command at once",
        "allocbench/interrupts.py",
        "dict.fromkeys(_TERMINATING, _terminate) | {signal.SIGINT: _interrupt}",
        "{signal.SIGINT: _interrupt}",
        (
            "tests/commands/test_interrupts.py"
            "::test_a_file_that_is_being_written_leaves_nothing_behind",
        ),
        r"assert \(-15, ",
    ),
    Bug(
        "gzip expands without a limit",
        "workloads/input_files.py",
        "if copy.tell() + len(part) > most:",
        "if False:",
        ("tests/workloads/test_limits.py::test_gzip_that_expands_too_much",),
        "DID NOT RAISE",
    ),
    Bug(
        "opcodes of a pickle that create objects are skipped",
        "workloads/native/pickle.cpp",
        "default: refuse(op);",
        "default: return;",
        ("tests/workloads/importers/test_pickles.py",),
        "test_a_callable_is_refused_and_nothing_runs",
    ),
    Bug(
        "a file that is nested too deeply ends a command with a traceback",
        "workloads/serving/model_configs.py",
        "except (ValueError, RecursionError) as error:",
        "except ValueError as error:",
        ("tests/test_fuzz_inputs.py::test_inputs_that_once_failed",),
        "RecursionError",
    ),
)
