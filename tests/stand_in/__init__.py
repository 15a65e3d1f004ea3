# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for Python packages that get memory from an allocator, and for callers of PyTorch's."""

from __future__ import annotations

from pathlib import Path

MODULES = str(Path(__file__).parent / "modules")
"""The folder of stand-ins for Python packages, for processes that must not load the real ones."""
TORCH_CALLS = Path(__file__).parent / "torch_calls"
"""C++ sources that call the entry points for PyTorch with PyTorch's own types."""
