# SPDX-License-Identifier: Apache-2.0
"""A Python that has the packages installed here, but not this project, which may be editable.

An editable install is found before PYTHONPATH is looked at.
"""

from __future__ import annotations

import sysconfig
import venv
from pathlib import Path


def python(folder: Path) -> str:
    """The interpreter of a new environment in a folder that does not exist yet."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    paths = {sysconfig.get_paths()[name] for name in ("purelib", "platlib")}
    (site / "elsewhere.pth").write_text("".join(f"{path}\n" for path in sorted(paths)))
    return str(folder / "bin" / "python")
