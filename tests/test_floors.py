# SPDX-License-Identifier: Apache-2.0
"""Imports and includes go down only, and files stay small."""

import ast
import graphlib
import importlib
import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from allocbench import allocators

ROOT = Path(__file__).parent.parent
NATIVE = Path("allocators/native")
PACKAGE = "allocbench"

# folder -> the other folders of this repository whose packages it may import
PYTHON_FLOORS = {
    "base": set[str](),
    "allocators": {"base"},
    "workloads": {"base"},
    "reports": {"base"},
    "null_gpu": {"base", "allocators", "workloads"},
    "allocbench": {"base", "allocators", "workloads", "reports", "null_gpu"},
    "benchmarks": {"base", "allocators", "workloads", "reports", "null_gpu", "allocbench"},
}
PYTHON_FLOORS["docs"] = PYTHON_FLOORS["benchmarks"] | {"benchmarks"}
PYTHON_FLOORS["tests"] = PYTHON_FLOORS["docs"] | {"docs"}
# The floors of the folder `allocbench`, the lowest first. A folder or module imports only from
# itself and from lower floors; those of the last floor also import each other.
FLOORS_OF_ALLOCBENCH = (
    {"base"},
    {"errors", "interrupts"},
    {"output", "programs", "replays", "verification"},
    {"inputs", "questions", "sweeps"},
    {"commands"},
    {"__main__", "api", "cli", "peak_change", "pytest_plugin", "testing"},
)
# folder of the native code -> the other folders that it may include
NATIVE_FLOORS = {
    "core": set[str](),
    "gpu": {"core"},
    "devices": {"core", "gpu"},
    "parts": {"core"},
    "planners": {"core", "parts"},
    "pytorch": {"core"},
    "strategies": {"core", "parts", "planners", "pytorch"},
    "wrappers": {"core", "parts"},
    "": {"core", "gpu", "devices", "parts", "planners", "pytorch", "strategies", "wrappers"},
}
# sources below the devices that include headers of the system: the lock asks for memory barriers,
# large arrays for huge pages, and an allocator of the user is a library that is loaded
CALL_THE_KERNEL = {"core/lock.cpp", "core/huge_pages.cpp", "strategies/external/shared_library.cpp"}
MOST_LINES = 600
MOST_LINES_OF_A_STRATEGY = 300
MOST_LINES_OF_A_FOLDER = {  # all files in it; more needs a reason
    "allocators": 22_364,
    "allocbench/base": 1_348,
    "allocbench/commands": 4_582,
    "allocbench/output": 651,
    "allocbench/programs": 1_349,
    "allocbench/questions": 6_619,
    "allocbench/replays": 2_011,
    "allocbench/sweeps": 327,
    "allocbench/verification": 769,
    "null_gpu": 10_354,
    "reports/advice": 1_751,
    "reports/charts": 715,
    "reports/page": 1_020,
    "reports/rows": 1_643,
    "workloads": 16_075,
}
# bfc also has timestamps, presets, a log and regions that it takes over; caching expandable
# segments, private pools and the segments that a recording begins with; planned learns and plans
# the steps of a program; rmm_arena has blocks in superblocks; external loads libraries and offers
# them the CUDA runtime.
LONGER_STRATEGIES = {"bfc": 567, "caching": 511, "external": 378, "planned": 2528, "rmm_arena": 463}
GENERATED = {Path("allocators/_core.pyi"), Path("workloads/_native.pyi")}


def python_violations(root: Path) -> list[str]:
    """Every import of a package on a higher or the same floor, as `file: imports package`."""
    return [
        f"{file.relative_to(root)}: imports {imported}"
        for package, below in PYTHON_FLOORS.items()
        for file in sorted(folder(root, package).rglob("*.py"))
        for imported in imports(ast.parse(file.read_text(encoding="utf-8")))
        if imported in PYTHON_FLOORS and imported not in below | {package}
    ]


def inner_violations(graph: dict[str, set[str]]) -> list[str]:
    """Every import inside of `allocbench` that does not go down, as `module: imports module`."""
    floor = {name: n for n, names in enumerate(FLOORS_OF_ALLOCBENCH) for name in names}
    top = len(FLOORS_OF_ALLOCBENCH) - 1
    found = []
    for module, imported in graph.items():
        here = part_of_allocbench(module)
        for other in imported:
            there = part_of_allocbench(other)
            if here in floor and there in floor and here != there:
                goes_down = floor[there] < floor[here] or floor[there] == floor[here] == top
                found += [] if goes_down else [f"{module}: imports {other}"]
    return found


def part_of_allocbench(module: str) -> str:
    """The folder or the module at the top of `allocbench` that a module belongs to, or ""."""
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] if package == PACKAGE else ""


def folder(root: Path, package: str) -> Path:
    return root / ("allocbench/base" if package == "base" else package)


def imports(tree: ast.AST) -> Iterator[str]:
    """The folders whose packages a module imports, those named to `import_module` included.

    The folders of `PYTHON_FLOORS` below `allocbench` are subpackages of it.
    """
    for node in ast.walk(tree):
        modules: list[str | None] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            modules = [node.module]
            if node.module == "allocbench":
                modules = [f"allocbench.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            named = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(named, ast.Constant):
                modules = [str(named.value)]
        for module in modules:
            package, _, rest = (module or "").partition(".")
            below = rest.partition(".")[0]
            yield below if package == "allocbench" and below in PYTHON_FLOORS else package


def native_violations(root: Path) -> list[str]:
    """Every include from a higher or the same floor, as `file: includes header`."""
    native = root / NATIVE
    found = []
    for file in sorted([*native.rglob("*.hpp"), *native.rglob("*.cpp")]):
        path = file.relative_to(native)
        folder = path.parts[0] if len(path.parts) > 1 else ""
        for open_, header in re.findall(r'#\s*include\s*([<"])([^>"]+)', file.read_text()):
            if open_ == '"':
                allowed = may_include(path, folder, Path(header))
            else:  # a header of the standard library has no extension
                allowed = (
                    folder in {"", "devices"}
                    or str(path) in CALL_THE_KERNEL
                    or re.fullmatch(r"\w+", header) is not None
                )
            if not allowed:
                found.append(f"{path}: includes {header}")
    return found


def may_include(path: Path, folder: str, header: Path) -> bool:
    target = header.parts[0] if len(header.parts) > 1 else ""
    if target == folder == "strategies":
        return owner(header) == owner(path)
    return target == folder or target in NATIVE_FLOORS.get(folder, set())


def owner(path: Path) -> str:
    """The strategy that a file of `strategies/` belongs to: its own file, or its folder's name."""
    return Path(path.parts[1]).stem


def test_python_imports_go_down() -> None:
    assert python_violations(ROOT) == []


def module_graph(root: Path) -> dict[str, set[str]]:
    """The modules that each module imports, anywhere in its code."""
    modules = {
        module_name(root, package, file): file
        for package in PYTHON_FLOORS
        for file in folder(root, package).rglob("*.py")
    }
    graph: dict[str, set[str]] = {}
    for name, file in modules.items():
        imported = set()
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    compiled = alias.name == "_core"
                    imported.add(whole if whole in modules or compiled else str(node.module))
        graph[name] = imported & modules.keys() - {name}
    return graph


def module_name(root: Path, package: str, file: Path) -> str:
    inside = file.relative_to(folder(root, package)).with_suffix("").parts
    before = () if package in (PACKAGE, "benchmarks", "docs", "tests") else (PACKAGE,)
    parts = [*before, package, *inside]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_imports_inside_of_allocbench_go_down() -> None:
    graph = module_graph(ROOT)
    assert inner_violations(graph) == []
    parts = {part_of_allocbench(module) for module in graph} - PYTHON_FLOORS.keys() - {""}
    assert parts == set.union(*FLOORS_OF_ALLOCBENCH) - {"base"}


def test_no_modules_import_each_other() -> None:
    graph = module_graph(ROOT)
    assert "allocbench.workloads.catalog" in graph["allocbench.inputs.traces"]
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    plant(tmp_path, "reports/a.py", "def f() -> None:\n    from allocbench.reports.b import g")
    plant(tmp_path, "reports/b.py", "from allocbench.reports import c")
    plant(tmp_path, "reports/c.py", "import allocbench.reports.a")
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter(module_graph(tmp_path)).prepare()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("replays/a.py", "from allocbench.questions import tune"),
        ("replays/a.py", "from allocbench.output.files import STDOUT"),
        ("questions/a.py", "def f() -> None:\n    from allocbench.commands.vary import answer"),
        ("commands/a.py", "from allocbench import cli"),
        ("errors.py", "import allocbench.output.files"),
    ],
)
def test_a_planted_import_inside_of_allocbench_is_found(
    tmp_path: Path, path: str, text: str
) -> None:
    files = ("questions/tune", "output/files", "commands/vary", "cli", "errors")
    for name in files:
        plant(tmp_path, f"allocbench/{name}.py", "")
    plant(tmp_path, "allocbench/api.py", "from allocbench import cli, errors")
    assert inner_violations(module_graph(tmp_path)) == []
    plant(tmp_path, f"allocbench/{path}", text)
    assert len(inner_violations(module_graph(tmp_path))) == 1


def test_native_includes_go_down() -> None:
    assert native_violations(ROOT) == []


def test_every_folder_of_the_native_code_has_a_floor() -> None:
    folders = {path.name for path in (ROOT / NATIVE).iterdir() if path.is_dir()}
    assert folders == NATIVE_FLOORS.keys() - {""}


def plant(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("allocators/a.py", "from allocbench import workloads"),
        ("allocators/deep/a.py", "def f() -> None:\n    from allocbench.cli import main"),
        ("workloads/a.py", "import numpy, allocbench.allocators.spec as s"),
        (
            "workloads/a.py",
            "from importlib import import_module\nimport_module('allocbench.reports.page.html')",
        ),
        ("reports/a.py", "import importlib\nimportlib.import_module('allocbench.allocators')"),
        ("reports/a.py", "from allocbench.workloads import Trace"),
        ("allocbench/base/a.py", "from allocbench.workloads import Trace"),
        ("allocbench/a.py", "import benchmarks"),
        ("benchmarks/a.py", "from tests.oracle import Judge"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, path: str, text: str) -> None:
    plant(
        tmp_path,
        "tests/ok.py",
        "import numpy\nfrom . import x\nfrom allocbench.allocators import names",
    )
    assert python_violations(tmp_path) == []
    plant(tmp_path, path, text)
    assert {line.partition(":")[0] for line in python_violations(tmp_path)} == {path}


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("core/a.hpp", '"parts/b.hpp"'),
        ("core/a.hpp", "<nanobind/nanobind.h>"),
        ("core/a.cpp", '"registry.hpp"'),
        ("core/lock.hpp", "<unistd.h>"),
        ("devices/a.cpp", '"parts/b.hpp"'),
        ("parts/a.hpp", '"strategies/b.hpp"'),
        ("parts/a.hpp", '"planners/b.hpp"'),
        ("planners/a.cpp", '"strategies/b.hpp"'),
        ("strategies/a.hpp", '"strategies/b.hpp"'),
        ("strategies/a.hpp", '"strategies/ab.hpp"'),
        ("strategies/a.hpp", '"strategies/b/part.hpp"'),
        ("strategies/a/part.hpp", '"strategies/b.hpp"'),
        ("planners/a.cpp", '"strategies/a/part.hpp"'),
        ("strategies/a.cpp", '"devices/simulated.hpp"'),
        ("strategies/a.cpp", "<cuda.h>"),
        ("wrappers/a.cpp", '"strategies/b.hpp"'),
        ("elsewhere/a.cpp", '"core/b.hpp"'),
    ],
)
def test_a_planted_include_is_found(tmp_path: Path, path: str, include: str) -> None:
    ok = '#include <map>\n#include "strategies/s.hpp"\n#include "core/b.hpp"\n'
    plant(tmp_path, f"{NATIVE}/strategies/s.cpp", ok)
    plant(tmp_path, f"{NATIVE}/strategies/s/part.cpp", ok)
    assert native_violations(tmp_path) == []
    plant(tmp_path, f"{NATIVE}/{path}", f"#include {include}\n")
    assert [line.partition(":")[0] for line in native_violations(tmp_path)] == [path]


def sources() -> list[Path]:
    return [
        path
        for package in PYTHON_FLOORS
        for pattern in ("*.py", "*.pyi", "*.hpp", "*.cpp")
        for path in sorted(folder(ROOT, package).rglob(pattern))
        if path.relative_to(ROOT) not in GENERATED
    ]


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_file_is_too_long() -> None:
    assert len(sources()) > 50
    assert [path for path in sources() if lines(path) > MOST_LINES] == []


def test_no_strategy_is_too_long() -> None:
    """A strategy is counted with every file that serves it alone."""
    length: dict[str, int] = {}
    native = ROOT / NATIVE
    for path in (native / "strategies").rglob("*.?pp"):
        strategy = owner(path.relative_to(native))
        length[strategy] = length.get(strategy, 0) + lines(path)
    assert length.keys() == {"external", *(info.name for info in allocators.strategies())}
    most = dict.fromkeys(length, MOST_LINES_OF_A_STRATEGY) | LONGER_STRATEGIES
    assert {name: n for name, n in length.items() if n > most[name]} == {}
    assert all(length[name] > MOST_LINES_OF_A_STRATEGY for name in LONGER_STRATEGIES)


def test_no_folder_is_too_long() -> None:
    length = {
        name: sum(lines(path) for path in {*sources()} if path.is_relative_to(ROOT / name))
        for name in MOST_LINES_OF_A_FOLDER
    }
    assert {name: n for name, n in length.items() if n > MOST_LINES_OF_A_FOLDER[name]} == {}


def test_a_class_name_has_one_meaning() -> None:
    places: dict[str, list[Path]] = {}
    for package in PYTHON_FLOORS.keys() - {"base", "benchmarks", "docs", "tests"}:
        for path in sorted(folder(ROOT, package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(path)
    assert len(places) > 200
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_folders_of_tests_mirror_the_packages() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")
    }
    places = [
        ROOT / place for place in ("", "allocbench", "allocators/native", "benchmarks", "workloads")
    ]
    for name in {part for path in folders for part in path.parts}:
        assert any((place / name).is_dir() for place in places), name


def test_there_is_one_import_name() -> None:
    """A program's own `workloads.py` must never be taken for ours, nor ours for it."""
    for name in ("allocators", "null_gpu", "reports", "workloads"):
        assert (ROOT / "allocbench" / name).resolve() == ROOT / name
        assert importlib.import_module(f"allocbench.{name}").__name__ == f"allocbench.{name}"
    top_level = {
        path.parts[0]
        for path in importlib.metadata.files("allocbench") or []
        if path.suffix in {".py", ".so"} and len(path.parts) > 1
    }
    assert top_level <= {"allocbench"}
