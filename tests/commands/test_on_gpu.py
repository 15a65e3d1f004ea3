# SPDX-License-Identifier: Apache-2.0
"""Commands with `--device cuda:0`, on the driver of the null GPU."""

import subprocess
import sys
from pathlib import Path

from tests.null_driver import environment

GIB = 1 << 30


def test_failed_requests_are_shown_with_the_free_bytes_of_the_gpu(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("op,id,size\n" + "".join(f"a,{n},{GIB}\n" for n in range(3)))

    def replay(memory: int, *options: str) -> str:
        command = [sys.executable, "-m", "allocbench", "replay", str(trace)]
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
        "note: requests failed; when the replays began, 2.50 GiB (2684354560 bytes) of the "
        "3.00 GiB (3221225472 bytes) of cuda:0 were free\n"
    ) in replay(3 * GIB)
