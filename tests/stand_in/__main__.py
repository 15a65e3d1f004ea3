# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.stand_in` compiles the stand-in and prints the folder that it is in."""

import tempfile
from pathlib import Path

from tests.stand_in import compile_into

if __name__ == "__main__":
    print(compile_into(Path(tempfile.mkdtemp(prefix="stand_in_"))))
