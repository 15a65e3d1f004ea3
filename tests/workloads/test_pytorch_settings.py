# SPDX-License-Identifier: Apache-2.0
"""Settings of PyTorch's allocator, from its text to the options of `caching`."""

from __future__ import annotations

import pytest

from allocbench.workloads.pytorch_settings import conf_of, read_conf


@pytest.mark.parametrize(
    ("conf", "options"),
    [
        ("", {}),
        ("throw_on_cudamalloc_oom:True", {"throw_on_cudamalloc_oom": "true"}),
        ("throw_on_cudamalloc_oom:False,expandable_segments:True", {"expandable_segments": "true"}),
        (
            "max_split_size_mb:64, throw_on_cudamalloc_oom : true",
            {"max_split_size_mb": "64", "throw_on_cudamalloc_oom": "true"},
        ),
    ],
)
def test_a_text_sets_the_options_of_caching(conf: str, options: dict[str, str]) -> None:
    assert read_conf(conf, overlap=False).options() == options


def test_options_are_written_as_pytorch_reads_them() -> None:
    options = read_conf(
        "throw_on_cudamalloc_oom:True,max_split_size_mb:64", overlap=False
    ).options()
    assert conf_of(options) == "throw_on_cudamalloc_oom:True,max_split_size_mb:64"
