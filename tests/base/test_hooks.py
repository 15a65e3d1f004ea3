# SPDX-License-Identifier: Apache-2.0
"""Hooks around the import of torch in other programs: their order, and what they do not change."""

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from allocbench.base.children import hook_variables

ROOT = Path(__file__).parents[2]
HOOK = """
print("start {name}")
REFUSED = {{"cupy": "{name} refuses cupy"}}

def before_torch(package):
    print("before {name}:", package.name)

def after_torch(torch):
    print("after {name}:", torch.value)
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with a torch and a cupy that only print."""
    for package in ("torch", "cupy"):
        (tmp_path / "site" / package).mkdir(parents=True)
        text = f"print('the code of {package}')\nvalue = 7\n"
        (tmp_path / "site" / package / "__init__.py").write_text(text)
    return tmp_path / "site"


def hooked(site: Path, *names: str) -> dict[str, str]:
    """An environment with the site on its path and hooks of these names."""
    environment = os.environ | {"PYTHONPATH": str(site)}
    for name in names:
        file = site.parent / f"{name}.py"
        file.write_text(HOOK.format(name=name))
        environment |= hook_variables(file, environment)
    return environment


def printed(program: str, environment: Mapping[str, str]) -> list[str]:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_hooks_enclose_the_code_of_torch(site: Path) -> None:
    assert printed("import torch, torch; print(torch.value)", hooked(site, "outer", "inner")) == [
        "start outer",
        "start inner",
        "before outer: torch",
        "before inner: torch",
        "the code of torch",
        "after inner: 7",
        "after outer: 7",
        "7",
    ]


def test_a_program_that_does_not_import_torch_is_left_alone(site: Path) -> None:
    program = "import sys, json; print(sys.path.count('x'), 'torch' in sys.modules)"
    assert printed(program, hooked(site, "a")) == ["start a", "0 False"]


def test_a_refused_package_cannot_be_imported(site: Path) -> None:
    program = "try:\n import cupy\nexcept ImportError as error:\n print(error)"
    assert printed(program, hooked(site, "a")) == ["start a", "a refuses cupy"]
    assert printed("import cupy", hooked(site)) == ["the code of cupy"]


def test_the_sitecustomize_of_the_program_runs(site: Path) -> None:
    (site / "sitecustomize.py").write_text("print('own')")
    environment = hooked(site, "a")
    assert printed("import sitecustomize; print(sitecustomize.__file__)", environment) == [
        "start a",
        "own",
        str(site / "sitecustomize.py"),
    ]


def test_a_hook_that_is_given_twice_runs_once_also_in_children(site: Path) -> None:
    environment = hooked(site, "a", "a")
    assert environment["PYTHONPATH"].split(os.pathsep)[1:] == [str(site)]
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'pass'])"
    assert printed(child, environment) == ["start a", "start a"]


@pytest.mark.parametrize(
    "file",
    [
        "allocbench/base/hook/sitecustomize.py",
        "null_gpu/inside/__init__.py",
        "null_gpu/inside/dispatcher.py",
        "workloads/edits_hook.py",
        "workloads/module_hook.py",
        "workloads/opened_files_hook.py",
        "workloads/recording_hook.py",
    ],
)
def test_hooks_import_only_the_standard_library_and_torch(file: str) -> None:
    imported = set[str]()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            imported.add(str(node.module))
    top_level = {name.partition(".")[0] for name in imported}
    assert top_level <= {*sys.stdlib_module_names, "torch"}
