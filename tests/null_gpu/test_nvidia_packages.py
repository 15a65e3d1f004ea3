# SPDX-License-Identifier: Apache-2.0
"""PyTorch installed with NVIDIA's packages: it still loads the null GPU's libraries."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from allocbench.null_gpu import device, elf, launch, stubs
from allocbench.null_gpu.stubs import CORE_SONAME, libraries_for
from tests.null_gpu import PROGRAMS, VERSIONS, python

SYSTEM = {"ld-linux-x86-64", "libc", "libdl", "libgcc_s", "libm", "libpthread", "librt"}
SYSTEM |= {"libquadmath", "libstdc++", "libz"}
FOLDERS = ("cublas", "cuda_runtime", "cuda_nvrtc", "cudnn", "nccl", "cu13")


def torch_of(version: str) -> Path:
    """The folder of a PyTorch that is not imported."""
    code = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    done = subprocess.run([python(version), "-c", code], capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_library_and_function_that_torch_needs_has_a_home(version: str) -> None:
    wanted = elf.read(torch_of(version) / "lib")
    others = {name.partition(".so")[0] for name in wanted.needed if not stubs.is_stubbed(name)}
    assert others <= SYSTEM
    made = libraries_for(wanted, elf.exported(launch.core()))
    homes = {name for functions in made.values() for name in functions}
    nvidias = {
        name
        for name, (library, _) in wanted.symbols.items()
        if stubs.is_stubbed(library) or (not library and stubs.family(name))
    }
    assert len(nvidias) > 600
    assert nvidias <= homes
    runtime = next(name for name in made if name.startswith("libcudart.so"))
    missing = {name for name, (_, jump) in made[runtime].items() if jump.target == "null_missing"}
    assert not missing & wanted.symbols.keys()
    unused = {"libcuda.so.1": "cuGraphicsMapResources", "libnvidia-ml.so.1": "nvmlDeviceGetSerial"}
    for library, name in (unused | {runtime: "cudaMemPrefetchBatchAsync"}).items():
        assert made[library][name][1].target == "null_missing"


@pytest.mark.parametrize("version", VERSIONS)
def test_nvidias_packages_are_not_loaded(version: str, tmp_path: Path) -> None:
    original, site = torch_of(version), tmp_path / "site"
    (site / "torch" / "lib").mkdir(parents=True)
    for path in original.iterdir():
        if path.name != "lib":
            (site / "torch" / path.name).symlink_to(path)
    for path in (original / "lib").iterdir():
        (site / "torch" / "lib" / path.name).symlink_to(path)
    for path in original.parent.iterdir():
        if path.name not in ("torch", "nvidia"):
            (site / path.name).symlink_to(path)
    # What stands for NVIDIA's libraries here needs that of the null GPU, which others do not find.
    for folder in FOLDERS:
        (site / "nvidia" / folder / "lib").mkdir(parents=True)
        for soname in elf.read(original / "lib").needed:
            if stubs.is_stubbed(soname):
                data = elf.shared_library(
                    soname, CORE_SONAME, {"f": ("", elf.Jump("null_harmless"))}
                )
                (site / "nvidia" / folder / "lib" / soname).write_bytes(data)
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); print(open('/proc/self/maps').read())"
    command = [python(version), "-c", code, str(PROGRAMS / "libraries.py")]
    environment = os.environ | {"PYTHONPATH": str(site)}
    failed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert f"{CORE_SONAME}: cannot open shared object file" in failed.stderr
    environment |= launch.environment(device.read("null:h100"), tmp_path)
    environment["PYTHONPATH"] += os.pathsep + str(site)
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    printed, _, maps = done.stdout.partition("\n")
    assert len(json.loads(printed)) == 20
    assert f"{site}/nvidia/" not in maps
