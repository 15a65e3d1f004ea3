# SPDX-License-Identifier: Apache-2.0
"""One import name: every build has it, and it cannot collide with a program's own modules."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import allocbench

ROOT = Path(__file__).parent.parent
BUILD = """
import os, sys
from scikit_build_core.build import build_sdist, build_wheel
what, folder = sys.argv[1:]
print(build_sdist(folder) if what == "sdist" else build_wheel(folder, {"wheel.cmake": "false"}))
"""
SCRIPT = """
from allocbench import api
from allocbench.workloads import catalog

import allocators, reports, workloads

assert {allocators.OWN, reports.OWN, workloads.OWN} == {"mine"}
assert len(catalog.load("random:allocs=10")) == 20
print(api.__name__)
"""


def built(what: str, source: Path, folder: Path) -> Path:
    """The sdist or the wheel of a source tree, without the native core, which takes minutes."""
    line = [sys.executable, "-c", BUILD, what, str(folder)]
    ended = subprocess.run(line, cwd=source, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return folder / ended.stdout.splitlines()[-1]


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The files of a wheel of this tree, and of a wheel of its sdist."""
    direct, unpacked = tmp_path_factory.mktemp("direct"), tmp_path_factory.mktemp("unpacked")
    with tarfile.open(built("sdist", ROOT, unpacked)) as archive:
        archive.extractall(unpacked, filter="data")
    (source,) = (path for path in unpacked.iterdir() if path.is_dir())
    return {
        "tree": contents(built("wheel", ROOT, direct)),
        "sdist": contents(built("wheel", source, unpacked)),
    }


@pytest.mark.parametrize("source", ["tree", "sdist"])
def test_a_wheel_has_one_package(source: str, wheels: dict[str, set[str]]) -> None:
    top = {name.partition("/")[0] for name in wheels[source]}
    assert {name for name in top if not name.endswith(".dist-info")} == {"allocbench"}


@pytest.mark.parametrize("source", ["tree", "sdist"])
@pytest.mark.parametrize("folder", ["allocators", "null_gpu", "reports", "workloads"])
def test_a_wheel_has_every_file_of_a_folder(
    source: str, folder: str, wheels: dict[str, set[str]]
) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True
    ).stdout.split("\0")[:-1]
    native = ("allocators/native", "null_gpu/native", "workloads/native")
    expected = {f"allocbench/{name}" for name in listed if not name.startswith(native)}
    assert len(expected) > 10
    assert expected <= wheels[source]


def test_a_program_may_have_modules_of_these_names(tmp_path: Path) -> None:
    for name in ("allocators", "null_gpu", "reports", "workloads"):
        (tmp_path / f"{name}.py").write_text('OWN = "mine"\n')
    (tmp_path / "program.py").write_text(SCRIPT)
    environment = os.environ | {"PYTHONPATH": str(Path(allocbench.__file__).parents[1])}
    line = [sys.executable, "program.py"]
    ended = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "allocbench.api\n"


def test_a_checkout_that_is_not_installed_knows_its_version(tmp_path: Path) -> None:
    package, project = tmp_path / "allocbench", tmp_path / "pyproject.toml"
    package.mkdir()
    (package / "__init__.py").write_bytes(Path(allocbench.__file__).read_bytes())

    def version() -> str:
        line = [sys.executable, "-S", "-c", "import allocbench; print(allocbench.__version__)"]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True).stdout.strip()

    assert version() == "unknown (not installed)"
    project.write_text('[project]\nname = "another"\nversion = "7.8.9"\n')
    assert version() == "unknown (not installed)"
    project.write_text('[project]\nname = "allocbench"\nversion = "7.8.9"\n')
    assert version() == "7.8.9"
