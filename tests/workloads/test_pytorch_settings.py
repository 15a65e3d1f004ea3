# SPDX-License-Identifier: Apache-2.0
"""PyTorch's rules by version, and its settings from texts and snapshots to options of `caching`."""

import pytest

from allocbench import allocators
from allocbench.workloads._native import PytorchSettings
from allocbench.workloads.pytorch_settings import (
    VARIABLES,
    WITHOUT_POOLS,
    PytorchRules,
    conf_of,
    split_conf,
)

MIB = 1 << 20


@pytest.mark.parametrize(
    ("version", "rules"),
    [
        ("2.9.1+cu128", "2.9"),
        ("2.13.0", "2.13"),
        ("2.15", "2.15"),
        ("2.1.0a0", "2.1"),
        ("2.99", "2.15"),
        ("3.0.0", "2.15"),
        ("2.0.1", None),
        ("1.13.1", None),
        ("2", None),
        ("", None),
        ("two.nine", None),
    ],
)
def test_every_version_has_rules(version: str, rules: str | None) -> None:
    found = PytorchRules.of(version)
    assert (found.version if found else None) == rules


def test_versions_with_the_same_rules_form_a_set() -> None:
    assert [(rules.since, rules.version) for rules in PytorchRules.sets()] == [
        ("2.1", "2.9"),
        ("2.10", "2.10"),
        ("2.11", "2.11"),
        ("2.12", "2.12"),
        ("2.13", "2.13"),
    ]
    (version,) = (
        option for option in allocators.info("caching").options if option.name == "version"
    )
    assert PytorchRules().version == version.default
    newest = PytorchRules.of("2.99")
    assert newest is not None
    assert f"{PytorchRules.sets()[0].since} to {newest.version};" in version.help


@pytest.mark.parametrize(
    ("version", "variable", "pools", "named", "rounding"),
    [
        ("2.9", "PYTORCH_CUDA_ALLOC_CONF", False, False, ""),
        ("2.10", "PYTORCH_ALLOC_CONF", False, False, "20"),
        ("2.11", "PYTORCH_ALLOC_CONF", True, False, None),
        ("2.12", "PYTORCH_ALLOC_CONF", True, False, None),
        ("2.13", "PYTORCH_ALLOC_CONF", True, True, None),
    ],
)
def test_what_differs_between_versions(
    version: str, variable: str, pools: bool, named: bool, rounding: str | None
) -> None:
    rules = PytorchRules.of(version)
    assert rules is not None
    assert rules.variable == variable
    assert (rules.allocates_from_pools, rules.names_pools) == (pools, named)
    assert rules.lasting.get("max_non_split_rounding_mb") == rounding
    assert rules.lasting["large_segment_size_mb"] == "20"
    assert VARIABLES == ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
    assert WITHOUT_POOLS in [
        rules.version for rules in PytorchRules.sets() if not rules.names_pools
    ]


@pytest.mark.parametrize(
    ("options", "requested", "rounded"),
    [
        ({}, 1, 512),
        ({}, 513, 1024),
        ({}, 3 * MIB + 1, 3 * MIB + 512),
        ({"roundup_power2_divisions": "4"}, 1200, 1536),  # 512 * 4 steps or less: by 512
        ({"roundup_power2_divisions": "4"}, 2049, 2560),
        ({"roundup_power2_divisions": "4"}, 5 * MIB + 1, 6 * MIB),
        ({"roundup_power2_divisions": "[1:4,2:1]"}, 3 * MIB + 1, 3 * MIB + 512),
        ({"roundup_power2_divisions": "[1:4,2:1]"}, 1000, 1024),
        ({"roundup_power2_divisions": "[1:8,256:1,>:4]"}, 300 * MIB + 1, 300 * MIB + 512),
        (
            {"roundup_power2_divisions": "[1:8,256:1,>:4]", "version": "2.9"},
            300 * MIB + 1,
            320 * MIB,  # ">" includes the interval from 256 MiB on
        ),
    ],
)
def test_sizes_are_rounded_as_the_strategy_rounds_them(
    options: dict[str, str], requested: int, rounded: int
) -> None:
    assert PytorchSettings(options).rounded(requested) == rounded
    spec = ",".join(f"{name}={value}" for name, value in options.items())
    made = allocators.make(f"caching:{spec}".rstrip(":"), allocators.SimulatedDevice("8GiB"))
    made.allocate(requested)
    (size,) = {
        block.size
        for segment in made.snapshot()
        for block in segment.blocks
        if block.allocated and block.size <= rounded
    }
    assert size == rounded


def test_options_are_written_as_pytorch_reads_them() -> None:
    options = {"throw_on_cudamalloc_oom": "true", "max_split_size_mb": "64", "version": "2.9"}
    assert conf_of(options) == "throw_on_cudamalloc_oom:True,max_split_size_mb:64"
    assert split_conf(f" {conf_of(options)}, a:[1:2,>:3],b") == [
        ("throw_on_cudamalloc_oom", "True"),
        ("max_split_size_mb", "64"),
        ("a", "[1:2,>:3]"),
        ("b", ""),
    ]
