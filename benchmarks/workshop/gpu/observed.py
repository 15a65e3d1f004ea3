# SPDX-License-Identifier: Apache-2.0
"""Run a script or a module, and write what PyTorch says about its memory at the end.

    python -m benchmarks.workshop.gpu.observed FACTS SCRIPT|MODULE ARGUMENT...

FACTS is the JSON file to write. The program runs in this process, as if it had been started alone.
"""

import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any


def facts() -> dict[str, Any]:
    """PyTorch's statistics and versions; {} if the program has not used a GPU."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return {}
    backend = torch.cuda.get_allocator_backend()
    # The backend cudaMallocAsync has no snapshots.
    snapshot = torch.cuda.memory._snapshot() if backend == "native" else {"segments": []}
    return {
        "backend": backend,
        "settings": snapshot.get("allocator_settings"),
        "stats": dict(torch.cuda.memory_stats()),
        "reserved": torch.cuda.memory_reserved(),
        "cudnn": torch.backends.cudnn.version(),
        "segments": [
            [segment["address"], segment["total_size"]] for segment in snapshot["segments"]
        ],
    }


def main() -> None:
    """Run the program; its exceptions and exit codes stay its own."""
    _, path, program, *arguments = sys.argv
    begun = time.monotonic()
    sys.argv = [program, *arguments]
    try:
        if program.endswith(".py"):
            sys.path[0] = str(Path(program).parent)
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    finally:
        seconds = time.monotonic() - begun
        Path(path).write_text(json.dumps(facts() | {"seconds": seconds}), encoding="utf-8")


if __name__ == "__main__":
    main()
