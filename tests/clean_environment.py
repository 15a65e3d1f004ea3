# SPDX-License-Identifier: Apache-2.0
"""An environment with the packages of this one, but without this project.

An editable install of the project would take precedence over PYTHONPATH.
"""

import sys
import venv
from pathlib import Path


def python(folder: Path) -> str:
    """The interpreter of a new environment in a folder that does not exist yet."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    (site / "elsewhere.pth").write_text("".join(f"{path}\n" for path in paths))
    return str(folder / "bin" / "python")
