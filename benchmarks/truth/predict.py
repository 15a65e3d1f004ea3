# SPDX-License-Identifier: Apache-2.0
"""One row of the table -> what its training program reserves on a null GPU.

allocbench is imported where it is used: asv also imports this file with commits that have no null
GPU.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.truth.environment import python
from benchmarks.truth.rows import KINDS, Prediction, Row, TruthError

PROGRAMS = Path(__file__).parent / "programs"
SLOWEST = 600  # seconds
_WORDS = {"MobeNet": "mobilenet_", "MobileNet": "mobilenet_", "ConvNeXt": "convnext_"}
_SIZES = ("Tiny", "Small", "Base", "Large")


def builder(model: str) -> str:
    """The name of torchvision's builder for a network as the table names it.

    "RegNetX400MF" -> "regnet_x_400mf", "MobeNetV3Small" -> "mobilenet_v3_small".
    """
    if model == "MnasNet":
        return "mnasnet1_0"
    name = model
    for word, plain in _WORDS.items():
        name = name.replace(word, plain)
    for size in _SIZES:
        name = name.replace(size, f"_{size}")
    name = name.replace("RegNetX", "regnet_x_").replace("RegNetY", "regnet_y_")
    name = name.replace("EfficientNet", "efficientnet_").lower()
    return name.replace("__", "_")


def command(row: Row, interpreter: Path) -> list[str]:
    """The command line of the program that trains a row's model."""
    model = builder(row.model) if row.kind == "cnn" else row.model
    told = ["--model", model, "--optimizer", row.optimizer, "--batch", str(row.batch)]
    told += ["--zero-grad-mode", str(row.zero_grad_mode)]
    return [str(interpreter), str(PROGRAMS / f"{row.kind}.py"), *told]


def device(row: Row, options: str = "") -> str:
    """The null GPU that is the card of a row; options: further options, as a user writes them.

    The memory is what the card of the measurement reported.
    """
    return f"null:{row.gpu},memory={row.memory}" + (f",{options}" if options else "")


def fingerprint() -> str:
    """What a prediction depends on in addition to its row: the programs and the native library."""
    from allocbench.null_gpu import launch

    digest = hashlib.sha256()
    for path in sorted(PROGRAMS.iterdir()):
        digest.update(path.read_bytes() if path.is_file() else b"")
    digest.update(launch.core().read_bytes())
    return digest.hexdigest()


def predict(row: Row, options: str, mark: str) -> Prediction:
    """The peak of a row; raises TruthError if the program reports no peak.

    options: of the null GPU. mark: a `fingerprint`, by which a stored prediction is found.
    """
    from allocbench.allocators import SpecError
    from allocbench.null_gpu import launch
    from allocbench.null_gpu.torch_build import NullGpuError

    if row.kind not in KINDS:
        raise TruthError(f"kind {row.kind!r} is not one of {', '.join(KINDS)}")
    line = command(row, python(row.torch))
    try:
        with launch.session(device(row, options), launch.Limits()) as session:
            assert session.machine is not None
            environment = os.environ | session.machine.environment
            done = subprocess.run(
                line, env=environment, capture_output=True, text=True, timeout=SLOWEST
            )
    except (SpecError, NullGpuError) as error:
        raise TruthError(str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise TruthError(f"no result after {SLOWEST} s") from error
    said = _last_object(done.stdout)
    if said is None:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise TruthError(last)
    return Prediction(said["reserved"], said["oom"])


def _last_object(text: str) -> dict[str, Any] | None:
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return None
