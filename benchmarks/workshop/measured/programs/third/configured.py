# SPDX-License-Identifier: Apache-2.0
"""Run another program of the rounds with settings of PyTorch's allocator."""

import os
import runpy
import sys
from pathlib import Path

programs = Path(__file__).parents[1]
told = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:3])
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = os.environ["PYTORCH_ALLOC_CONF"] = told["settings"]
sys.argv[:3] = [str(programs / f"{told['program']}.py")]
sys.path[0] = str(programs)
runpy.run_path(sys.argv[0], run_name="__main__")
