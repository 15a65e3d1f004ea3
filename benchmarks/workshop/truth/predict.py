# SPDX-License-Identifier: Apache-2.0
"""One training run -> what its program reserves on a null GPU.

allocbench is imported where it is used: asv also imports this file with commits that have no null
GPU.
"""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.workshop.truth.environment import python
from benchmarks.workshop.truth.rows import KINDS, Prediction, Run, TruthError

PROGRAMS = Path(__file__).parent / "programs"
SLOWEST = 600  # seconds


def command(run: Run, interpreter: Path) -> list[str]:
    """The command line of the program that trains a run's model."""
    told = [f"--model={run.model}", f"--optimizer={run.optimizer}", f"--batch={run.batch}"]
    told += [f"--zero-grad-mode={run.zero_grad_mode}"]
    return [str(interpreter), str(PROGRAMS / f"{run.kind}.py"), *told]


def device(run: Run, options: str = "") -> str:
    """The null GPU that is the card of a run; options: further options, as a user writes them.

    The memory is what the card of the measurement reported, if that was published.
    """
    told = [f"null:{run.gpu}"]
    if run.memory:
        told.append(f"memory={run.memory}")
    if options:
        told.append(options)
    return ",".join(told)


def fingerprint() -> str:
    """What a prediction depends on in addition to its run.

    These are the training programs, the native library, the cards and the workspaces.
    """
    from allocbench.base import cards
    from allocbench.null_gpu import launch

    read = [*sorted(path for path in PROGRAMS.iterdir() if path.is_file()), launch.core()]
    read.append(Path(cards.__file__).with_name("cards.json"))
    read.append(Path(launch.__file__).with_name("workspaces.json"))
    digest = hashlib.sha256()
    for path in read:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def predict(run: Run, options: str, mark: str) -> Prediction:
    """The peak of a run above its first sample; raises TruthError if its program reports none.

    options: of the null GPU. mark: a `fingerprint`, by which a stored prediction is found.
    """
    from allocbench.allocators import SpecError
    from allocbench.null_gpu import launch
    from allocbench.null_gpu.torch_build import NullGpuError

    if run.kind not in KINDS:
        raise TruthError(f"kind {run.kind!r} is not one of {', '.join(KINDS)}")
    if run.batch < 1:
        raise TruthError(f"batch={run.batch} is less than 1")
    line = command(run, python(run.torch))
    try:
        with launch.session(device(run, options), launch.Limits()) as session:
            assert session.machine is not None
            environment = os.environ | session.machine.environment
            done = subprocess.run(
                line, env=environment, capture_output=True, text=True, timeout=SLOWEST
            )
    except (SpecError, NullGpuError) as error:
        raise TruthError(str(error)) from error
    except subprocess.TimeoutExpired as error:
        raise TruthError(f"no result after {SLOWEST} s") from error
    said = last_object(done.stdout)
    if said is None:
        last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise TruthError(last)
    peak = said["reserved"] - said["first_sample"]
    most = peak + session.summary.workspace
    return Prediction(peak, said["oom"], said["first_sample"], most, said.get("dtype", "float32"))


def last_object(text: str) -> dict[str, Any] | None:
    """The last line of JSON that a program printed."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            found: dict[str, Any] = json.loads(line)
            return found
    return None
