# SPDX-License-Identifier: Apache-2.0
"""Commands with `--device cuda:0`, on the driver of the null GPU."""

from __future__ import annotations

import subprocess
import sys

from tests.null_driver import environment

GIB = 1 << 30


def test_failed_requests_are_shown_with_the_free_bytes_of_the_gpu() -> None:
    def replay(memory: int, *options: str) -> str:
        command = [sys.executable, "-m", "allocbench", "replay", "fill:size=1GiB,count=3"]
        done = subprocess.run(
            [*command, "--allocator", "naive", "--device", "cuda:0", "--json", "-", *options],
            env=environment({"memory": memory, "context": GIB // 2, "count": 1}),
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return done.stderr

    assert "were free" not in replay(4 * GIB)
    assert (
        "note: requests failed; when the replays began, 2.50 GiB of the 3.00 GiB of cuda:0 "
        "were free"
    ) in replay(3 * GIB)
