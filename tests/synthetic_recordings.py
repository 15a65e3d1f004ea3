# SPDX-License-Identifier: Apache-2.0
"""Recordings of PyTorch's own allocator on a stand-in for the CUDA runtime."""

import gzip
import json
import pickle
from pathlib import Path
from typing import Any

SYNTHETIC = Path(__file__).parent / "data/recordings"
CASES: dict[str, dict[str, Any]] = json.loads((SYNTHETIC / "cases.json").read_text())


def told(name: str) -> Any:
    """The content of a recording, for a test to change."""
    return pickle.loads(gzip.decompress((SYNTHETIC / f"{name}.pickle.gz").read_bytes()))
