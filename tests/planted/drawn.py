# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501  lines of the sources as they are
"""Bugs at places that `tests.planted.draw --seed 46` drew, each with a test of its folder that notices it."""

from __future__ import annotations

from tests.planted.bugs import Bug

DRAWN = (
    Bug(
        "the number of a stream may be one past the known ones",
        "allocators/native/devices/cuda.cpp",
        "while (streams_.size() <= number) {",
        "while (streams_.size() < number) {",
        ("tests/allocators/test_cuda_device.py::test_one_failed_call_loses_nothing",),
    ),
    Bug(
        "the arena planner preserves the other tensors",
        "allocators/native/planners/arena_planner.hpp",
        "    schedule(preserve_inputs, preserve_intermediates);\n",
        "    schedule(preserve_intermediates, preserve_inputs);\n",
        (
            "tests/allocators/planners/test_arena_planner.py::test_simple_graph_with_inputs_preserved",
        ),
    ),
    Bug(
        "undoing a placement leaves the top of its sections",
        "allocators/native/planners/skyline.hpp",
        "      top_by_section_[section] = top;\n      changed",
        "      changed",
        (
            "tests/allocators/planners/test_exact_search.py::test_planted_plans_with_large_gaps_are_found",
        ),
    ),
    Bug(
        "a step does not end the work of streams",
        "allocators/native/strategies/expandable.hpp",
        "void do_step() override { streams_done(); }",
        "void do_step() override {}",
        (
            "tests/allocators/strategies/test_expandable.py::test_a_block_freed_on_another_stream_waits_for_a_step",
        ),
    ),
    Bug(
        "among cards of one size, the slowest answers to their name",
        "allocbench/base/cards.py",
        "return max(matching, key=lambda card: card.compute",
        "return min(matching, key=lambda card: card.compute",
        ("tests/questions/test_fit.py::test_a_card_can_be_the_device",),
    ),
    Bug(
        "rows of a sweep all count as earlier ones",
        "allocbench/commands/sweep.py",
        "earlier = max(0, len(swept) - added)",
        "earlier = len(swept)",
        (
            "tests/sweeps/test_sweep.py::test_a_sweep_that_was_ended_leaves_no_worker_and_resumes_without_duplicates",
        ),
    ),
    Bug(
        "what a run proved is not in the table of changes",
        "allocbench/commands/whatif.py",
        "saved = answer.need - (proposal.run or proposal.need)",
        "saved = answer.need - proposal.need",
        ("tests/questions/test_whatif.py::test_a_run_takes_the_place_of_an_estimate",),
    ),
    Bug(
        "free blocks are drawn like blocks in use",
        "allocbench/output/text_drawings.py",
        "        if not block.allocated:\n            continue\n        begin",
        "        begin",
        (
            "tests/questions/test_explain.py::test_the_picture_is_as_long_as_segments_are_large_and_marks_pins",
        ),
    ),
    Bug(
        "--rerun answers from the recording",
        "allocbench/programs/program.py",
        "entry = None if settings.again else kept.load(name)",
        "entry = kept.load(name)",
        (
            "tests/programs/test_program_workloads.py::test_the_second_question_is_answered_from_the_cache",
        ),
    ),
    Bug(
        "a remedy hides what another allocator costs",
        "allocbench/questions/check.py",
        'costs = LOSSES.get(kind(chosen), "")',
        'costs = ""',
        ("tests/questions/test_check.py::test_rounding_that_no_setting_cures",),
    ),
    Bug(
        "an update in the backward pass asks for no effort",
        "allocbench/questions/edits.py",
        '"gradients",\n        3,',
        '"gradients",\n        0,',
        ("tests/questions/test_whatif.py::test_the_edits_that_ask_least_are_chosen",),
    ),
    Bug(
        "a gap in the capacities is told with its lowest end",
        "allocbench/questions/fit.py",
        "max(run.boundary(spec, above=True).fails_above, default=None)",
        "min(run.boundary(spec, above=True).fails_above, default=None)",
        ("tests/questions/test_fit.py::test_an_allocator_that_is_not_monotone_is_seen_through",),
    ),
    Bug(
        "what nvidia-smi shows leaves out what the allocator reserves",
        "allocbench/questions/occupancy.py",
        "return self.reserved + sum(self.parts.values())",
        "return sum(self.parts.values())",
        ("tests/questions/test_occupancy.py::test_the_byte_at_which_a_program_no_longer_fits",),
    ),
    Bug(
        "a peak that grows by all that is allowed is too large",
        "allocbench/questions/peaks.py",
        "if grown <= baseline.load * percent / 100:",
        "if grown < baseline.load * percent / 100:",
        ("tests/questions/test_peaks.py::test_a_baseline",),
    ),
    Bug(
        "the cheapest settings are called the default",
        "allocbench/questions/tune.py",
        '"default": trial == tuned.default,',
        '"default": trial == tuned.least,',
        (
            "tests/questions/test_tune.py::test_the_frame_has_the_best_first_and_the_host_time_of_allocbench_allocators",
        ),
    ),
    Bug(
        "one value is a variation",
        "allocbench/questions/vary.py",
        "if len(values) < 2 or",
        "if len(values) < 1 or",
        ("tests/questions/test_vary.py::test_valid_variations",),
    ),
    Bug(
        "the last set of changes that fits is chosen",
        "allocbench/questions/whatif.py",
        "                enough = found\n                break\n",
        "                enough = found\n",
        ("tests/questions/test_whatif.py::test_the_edits_that_ask_least_are_chosen",),
    ),
    Bug(
        "a sweep always repeats what failed",
        "allocbench/sweeps/sweep.py",
        'if not (retry and record["error"])}',
        'if not record["error"]}',
        ("tests/sweeps/test_sweep.py::test_a_run_that_raises_or_dies_is_a_row_with_an_error",),
    ),
    Bug(
        "a symbol of the stub has the address of the first",
        "null_gpu/elf.py",
        "index, value = section, text + begin",
        "index, value = section, text",
        ("tests/null_gpu/test_driver.py::test_a_process_reports_what_it_leaves_behind",),
    ),
    Bug(
        "a device that is not there can be current",
        "null_gpu/native/devices.cpp",
        "  Contexts::get().use_runtime();\n  if (!Machine::get().has(device)) return failed(kInvalidDevice);\n  set_current_device(device);",
        "  Contexts::get().use_runtime();\n  set_current_device(device);",
        ("tests/null_gpu/test_core.py::test_visible_devices_are_those_that_are_named",),
    ),
    Bug(
        "the longest transform in shared memory needs a workspace",
        "null_gpu/native/libraries/linear_algebra.cpp",
        "size > kInSharedMemory",
        "size >= kInSharedMemory",
        (
            "tests/null_gpu/test_workspaces.py::test_a_fourier_transform_asks_for_what_was_measured_on_an_h100",
        ),
    ),
    Bug(
        "the room of an answer is a share of the card",
        "reports/advice/confidence.py",
        "spare = (capacity - need) / need if need else 0.0",
        "spare = (capacity - need) / capacity if need else 0.0",
        ("tests/questions/test_recommend.py::test_confidence_names_its_grounds",),
    ),
    Bug(
        "what the default leaves is what the winner leaves",
        "reports/advice/recommending.py",
        "the default leaves {units.size(max(0, capacity - least))}",
        "the default leaves {units.size(max(0, capacity - need))}",
        ("tests/reports/test_findings.py::test_what_is_left_on_a_card_of_8_gib",),
    ),
    Bug(
        "a mean skips workloads without a ratio",
        "reports/page/tables.py",
        "        if not value or not reference:\n            return math.nan\n        logarithms",
        "        if not value or not reference:\n            continue\n        logarithms",
        ("tests/reports/test_tables.py::test_a_mean_over_workloads_has_the_mean_of_the_intervals",),
    ),
    Bug(
        "tables of a bundle are not checked",
        "reports/rows/bundle.py",
        "tables[name] = detail_tables.checked(name, frame, where)",
        "tables[name] = frame",
        ("tests/reports/test_bundle.py::test_written_results_are_read_back",),
    ),
    Bug(
        "what XLA could not reserve leaves all bytes free",
        "workloads/error_texts/xla.py",
        "free=free and exact(0),",
        "free=free,",
        ("tests/questions/test_error_text.py::test_other_programs",),
    ),
    Bug(
        "streams and numbers of events share bits",
        "workloads/events.py",
        "_STREAM, _NUMBER = 8, 24",
        "_STREAM, _NUMBER = 8, 16",
        ("tests/workloads/test_synthetic.py::test_a_bomb_hurts_its_targets_and_spares_others",),
    ),
    Bug(
        "a private pool is exported with the name of the next one",
        "workloads/exporters/pytorch_snapshot.py",
        "replayed.trace.pools[pool - 1].name.partition",
        "replayed.trace.pools[pool % len(replayed.trace.pools)].name.partition",
        ("tests/workloads/exporters/test_pytorch_snapshot.py::test_private_pools_have_their_ids",),
    ),
    Bug(
        "frees count as failed allocs",
        "workloads/exporters/replayed_trace.py",
        "(self.trace.op == ALLOC) & (self.address == 0)",
        "self.address == 0",
        ("tests/workloads/exporters/test_pytorch_snapshot.py::test_failed_requests_and_trims",),
    ),
    Bug(
        "the innermost frame tells whether a stack is backward",
        "workloads/importers/labels.py",
        "bool(_TORCH.search(frames[-1].filename)) or any(",
        "bool(_TORCH.search(frames[0].filename)) or any(",
        (
            "tests/workloads/importers/test_labels.py::test_frames_of_the_hook_are_neither_lines_nor_modules",
        ),
    ),
    Bug(
        "an event on the wrong side of a time may be far away",
        "workloads/importers/snapshot_additions.py",
        "if wrong is None or far(wrong) > _CLOCKS_DIFFER:",
        "if wrong is None:",
        (
            "tests/workloads/importers/test_snapshot_workspaces.py::test_clocks_may_differ_by_a_little",
        ),
    ),
    Bug(
        "a compressed file keeps its outer name",
        "workloads/input_files.py",
        "name = Path(unpacked[1]) if unpacked[1] else _without(name)",
        "name = _without(name)",
        ("tests/workloads/test_limits.py::test_packed_files",),
    ),
    Bug(
        "a batch is one text larger",
        "workloads/models/bert.py",
        "if bucket * len(waiting[bucket]) >= config.tokens:",
        "if bucket * len(waiting[bucket]) > config.tokens:",
        ("tests/workloads/test_models.py::test_texts_wait_until_a_batch_of_their_bucket_is_full",),
    ),
    Bug(
        "the two numbers of a pickled pair are exchanged",
        "workloads/native/pickle_bindings.cpp",
        "return std::tuple(first, second);",
        "return std::tuple(second, first);",
        (
            "tests/workloads/importers/test_snapshot_tables.py::test_the_same_lists_and_tuples_in_many_events",
        ),
    ),
    Bug(
        "every optimizer ends a step",
        "workloads/recording_hook.py",
        "        if self._first != id(optimizer):\n            return\n        self._seen",
        "        self._seen",
        (
            "tests/programs/test_program_workloads.py::test_a_step_ends_with_the_first_of_several_optimizers",
        ),
    ),
    Bug(
        "a prefix that is idle cannot be evicted for the last page",
        "workloads/serving/caches.py",
        "if lacking > len(self._idle) * self._per_prefix:",
        "if lacking >= len(self._idle) * self._per_prefix:",
        ("tests/workloads/serving/test_server.py::test_swapping_takes_the_time_of_its_bytes",),
    ),
    Bug(
        "lists of unequal length are a log of requests",
        "workloads/serving/logs.py",
        "isinstance(output, list) and len(prompt) == len(output)):",
        "isinstance(output, list)):",
        ("tests/workloads/serving/test_requests.py::test_columns_that_cannot_be_read",),
    ),
    Bug(
        "the bias of a query leaves out keys and values",
        "workloads/serving/models.py",
        '*([("qkv_bias", qkv)] if',
        '*([("qkv_bias", self.query)] if',
        (
            "tests/workloads/serving/test_requests.py::test_models_have_the_published_parameter_counts",
        ),
    ),
)
