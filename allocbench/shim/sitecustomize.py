# SPDX-License-Identifier: Apache-2.0
"""Found first by the Python processes that `allocbench run` starts; then the program's own runs."""

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path

from allocbench import running

running.await_torch()

sys.path[:] = [entry for entry in sys.path if Path(entry) != Path(__file__).parent]
if (_spec := PathFinder.find_spec(__name__, sys.path)) and _spec.loader:
    sys.modules[__name__] = module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[__name__])
