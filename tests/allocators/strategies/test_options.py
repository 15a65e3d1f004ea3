# SPDX-License-Identifier: Apache-2.0
"""Options of strategies that are out of their range, or contradict one another."""

import pytest

from allocbench import allocators

DIVISIONS = "must be a power of two, or a list"
REFUSED = [
    ("arena:segment=255", "arena: option segment"),
    ("bfc:memory_limit=1GiB,per_process_memory_fraction=0.5", "bfc: option"),
    ("bfc:memory_limit=255", "bfc: option"),
    *((f"bfc:per_process_memory_fraction={n}", "bfc: option") for n in ("0", "1.5", "nan")),
    *((f"bfc:fragmentation_fraction={n}", "bfc: option") for n in ("-0.1", "1.5")),
    *((f"bfc:retry_seconds={n}", "bfc: option") for n in ("-1", "nan", "86401")),
    ("bfc:preset=torch", "preset=torch must be tensorflow, jax or onnxruntime"),
    ("bfc:extend=twice", "extend=twice must be doubling or requested"),
    ("bfc:first_region=255", "first_region=255 must be at least 256 bytes"),
    ("bfc:largest_region=1MiB", "largest_region=1MiB must not be smaller than first_region"),
    ("binning:smallest=300,of=rmm_pool", "smallest=300 must be a power of two"),
    ("binning:largest=128KiB,of=rmm_pool", "largest=128KiB must be a power of two"),
    *((f"buddy:region={n}", "buddy: option region") for n in ("512", "3MiB", "0")),
    ("caching:version=2.16", "must be 2.1 to 2.15"),
    ("caching:large_segment_size_mb=32,version=2.10", "must be 20 in version 2.10"),
    ("caching:large_segment_size_mb=24,version=2.9", "must be 20 in version 2.9"),
    ("caching:large_segment_size_mb=10", "must be a whole number of at least 11"),
    ("caching:large_segment_size_mb=15,expandable_segments=true", "must be even"),
    ("caching:max_split_size_mb=19", "must be a whole number of at least 20"),
    ("caching:max_split_size_mb=20.5", "must be a whole number"),
    ("caching:max_split_size_mb=20,version=2.9", "must be a whole number of at least 21"),
    ("caching:max_split_size_mb=30,large_segment_size_mb=40", "whole number of at least 40"),
    ("caching:max_non_split_rounding_mb=10", "must be a whole number of at least 20"),
    *(
        (f"caching:roundup_power2_divisions={value}", DIVISIONS)
        for value in ("3", "[3:2]", "[4:3]", "[4:2", "")
    ),
    ("caching:garbage_collection_threshold=1", "must be greater than 0 and less than 1"),
    ("caching:per_process_memory_fraction=1.5", "must be from 0 to 1"),
    ("caching:conf=max_split_size_mb:7", "max_split_size_mb=7 must be"),
    ("caching:conf=max_split_size_mb:", "must be key:value"),
    ("caching:conf=a:1,:2", "must be key:value"),
    ("caching:conf=backend:cudaMallocAsync", "native"),
    ("caching:conf=nothing:1", "no option 'nothing'; valid options: .*max_split_size_mb"),
    ("caching:conf=version:2.9", "PyTorch has no setting 'version'"),
    ("caching:conf=max_split_size_mb:30,max_split_size_mb=40", "size_mb=40 is given twice"),
    *(
        (f"expandable:{option}", option)
        for option in ("page=0", "page=3MiB", "slack=-1", "slack=nan", "small=-1")
    ),
    *(
        (f"free_lists:{options}", "free_lists: option")
        for options in ("round=0", "round=2GiB", "buffer=1023", "round=2MiB,buffer=1MiB")
    ),
    *(
        (f"planned:page={page}", f"page={page} must be a multiple of .*2097152")
        for page in ("0", "3MiB", "1MiB")
    ),
    ("rmm_arena:arena_size=1000KiB", "arena_size=1000KiB must be at least 1 MiB"),
    ("rmm_pool:initial_pool_size=1000", "initial_pool_size=1000 must be a multiple of 256"),
    ("rmm_pool:maximum_pool_size=0", "maximum_pool_size=0 must be at least 256 bytes"),
    (
        "rmm_pool:initial_pool_size=2MiB,maximum_pool_size=1MiB",
        "initial_pool_size=2MiB must not exceed maximum_pool_size",
    ),
    *((f"slab:{option}", option) for option in ("slab=255", "empty_slabs=-1", "empty_slabs=1.5")),
    *((f"xla_vmm:memory_fraction={n}", "above 0 and at most 1") for n in ("0", "1.01", "nan")),
]


@pytest.mark.parametrize(("spec", "rule"), REFUSED)
def test_options_out_of_range_are_refused(spec: str, rule: str) -> None:
    with pytest.raises(allocators.SpecError, match=rule):
        allocators.make(spec, allocators.SimulatedDevice("1GiB"))
