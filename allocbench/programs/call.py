# SPDX-License-Identifier: Apache-2.0
"""Calls a function from a file: `call.py FILE`, as `allocbench.programs.functions` writes it.

Only the standard library may be imported before the paths in the file are set.
"""

import pickle
import sys

if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        sys.path[:] = pickle.load(file)
        function = pickle.load(file)
    function()
