# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.workshop.gpu`: run the tasks without a result, within a time budget."""

import argparse
import shlex
import sys
import tempfile
from pathlib import Path

from allocbench.allocators import DeviceError, SpecError, cuda_devices
from allocbench.null_gpu import device, launch
from allocbench.null_gpu.torch_build import NullGpuError
from benchmarks.workshop.gpu.provenance import NULL, ROOT, folder_name
from benchmarks.workshop.gpu.running import run
from benchmarks.workshop.gpu.stages import ALWAYS, STAGES, in_order

RESULTS = ROOT / "benchmarks" / "results" / "gpu"
NOT_ON_NULL = {
    "cupy": "CuPy does not run on a null GPU",
    **dict.fromkeys(
        ("driver", "costs", "replays", "integrity"),
        "it calls the driver without PyTorch; rehearse it with --dry",
    ),
}
"""The stages that --null refuses, and why."""


def seconds(text: str) -> float:
    """The seconds of "1500", "1500s", "25m" or "0.5h"; raises ValueError."""
    unit = {"s": 1, "m": 60, "h": 3600}.get(text[-1:])
    return float(text[:-1]) * unit if unit else float(text)


def main() -> int:
    """The command line; returns the exit code.

    1 if a task failed, 2 for a wrong command line, 3 if the time was too short for all tasks, 130
    after an interrupt.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workshop.gpu", description=__doc__)
    parser.add_argument("--only", default="", help=f"stages to run, from {','.join(STAGES)}")
    parser.add_argument("--match", default="", help="run only tasks whose name contains this")
    parser.add_argument("--into", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument(
        "--budget", type=seconds, default=1500, help="time for all tasks: 25m, or seconds"
    )
    parser.add_argument("--jobs", type=int, default=1, help="tasks that may run at the same time")
    parser.add_argument("--fresh", action="store_true", help="repeat tasks that have a result")
    parser.add_argument("--plan", action="store_true", help="only print the commands")
    parser.add_argument("--dry", action="store_true", help="rehearse with tiny programs on the CPU")
    parser.add_argument("--null", metavar="DEVICE", help="rehearse on a null GPU: null:h100")
    arguments = parser.parse_args()
    if arguments.jobs < 1:
        parser.error(f"--jobs {arguments.jobs}: must be at least 1")
    stages = [name for name in arguments.only.split(",") if name]
    if unknown := set(stages) - set(STAGES):
        parser.error(f"--only: no stage is called {min(unknown)}; stages: {', '.join(STAGES)}")
    refused = set(stages) & NOT_ON_NULL.keys() if arguments.null else set()
    if refused:
        parser.error(f"--only {min(refused)}: {NOT_ON_NULL[min(refused)]}")
    stages = stages or [name for name in ALWAYS if not arguments.null or name not in NOT_ON_NULL]
    tasks = [task for task in in_order(stages) if arguments.match in task.name]
    if arguments.plan:
        for task in tasks:
            output = arguments.into / "GPU" / task.stage / f"{task.name}.json"
            command = task.command(str(output), dry=arguments.dry)
            print(shlex.join([*(f"{key}={value}" for key, value in task.variables), *command]))
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="allocbench-null-") as folder:
            variables = {}
            if arguments.null:
                spec = device.read(arguments.null)
                variables = launch.environment(spec, folder) | {NULL: arguments.null}
            else:
                cuda_devices()
            into = arguments.into / folder_name(arguments.null)
            return run(tasks, into, variables, arguments)
    except (SpecError, DeviceError, NullGpuError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
