# SPDX-License-Identifier: Apache-2.0
"""The steps of docs/extending.md work: each is followed in a copy of the source, and tried."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from allocbench import allocators
from allocbench.allocators import _core
from allocbench.null_gpu import launch
from allocbench.workloads import _native
from docs.generate import tables
from tests.null_gpu import python

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
# An editable install finds allocbench before the path does, so its finder has to go.
REMOVE_FINDER = """
import sys
sys.meta_path = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
"""
RUN = """
sys.path.insert(0, {path!r})
import allocbench
assert allocbench.__file__.startswith({path!r}), allocbench.__file__
{code}
"""
MAIN = "from allocbench.__main__ import main; sys.argv[0] = 'allocbench'; main()"


def insert(root: Path, path: str, after: str, text: str) -> None:
    """Insert text after what occurs once in a file that the page names."""
    assert path in PAGE
    content = (root / path).read_text(encoding="utf-8")
    assert content.count(after) == 1, f"{path}: {after}"
    (root / path).write_text(content.replace(after, after + text), encoding="utf-8")


class Copy:
    """A copy of the Python source, to be extended."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("allocators", "workloads", "reports", "null_gpu", "allocbench"):
            ignored = shutil.ignore_patterns("native", "__pycache__", "*.parquet")
            shutil.copytree(ROOT / name, root / name, symlinks=True, ignore=ignored)
        core, native = Path(str(_core.__file__)), Path(str(_native.__file__))
        libraries = (("allocators", core), ("allocators", launch.core()), ("workloads", native))
        for folder, built in libraries:
            if not (root / folder / built.name).exists():
                (root / folder / built.name).symlink_to(built)
        (root / "sitecustomize.py").write_text(REMOVE_FINDER)  # for processes that this one starts

    def write(self, path: str, text: str) -> None:
        """Add a file; the page names its folder."""
        assert f"{Path(path).parent}/" in PAGE
        (self.root / path).write_text(text, encoding="utf-8")

    def insert(self, path: str, after: str, text: str) -> None:
        """Insert text after a line of a file that the page names."""
        insert(self.root, path, after, text)

    def python(self, code: str, *arguments: str) -> str:
        command = [
            sys.executable,
            "-c",
            REMOVE_FINDER + RUN.format(path=str(self.root), code=code),
            *arguments,
        ]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def allocbench(self, *arguments: str) -> str:
        return self.python(MAIN, *arguments)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_metric(copy: Copy) -> None:
    copy.insert(
        "reports/rows/columns.py",
        "share of the events.\n[memory]\n",
        'twice: bytes, lower is better, called "twice the load"\n    Twice the max load.\n',
    )
    copy.insert(
        "allocbench/replays/runner.py",
        '        "max_load": result.max_load,\n',
        '        "twice": 2 * result.max_load,\n',
    )
    options = ("random:allocs=20", "--allocator", "naive", "--time", "0", "--no-min-capacity")
    (row,) = json.loads(copy.allocbench("replay", *options, "--json", "-"))
    assert row["twice"] == 2 * row["max_load"] > 0
    assert "twice the load" in copy.allocbench("replay", *options)


def test_charts(copy: Copy) -> None:
    copy.insert(
        "reports/charts/figures.py",
        "ROW_FIGURES: Mapping[str, tuple[Sequence[str], Bound]] = {\n",
        '    "toy": (("overhead",), None),\n',
    )
    copy.insert(
        "reports/charts/figures.py",
        "CASE_FIGURES: Mapping[str, Callable[[pd.DataFrame, Case, Looks], Figure]] = {\n",
        '    "moments": lambda table, case, looks: Figure(),\n',
    )
    options = (
        *[
            "--allocators",
            "naive,bfc",
            "--time",
            "0",
            "--no-min-capacity",
            "--results",
            "results.zip",
        ],
    )
    copy.allocbench("compare", "random:allocs=50", *options)
    copy.allocbench("report", "results.zip", "--figures", "figures")
    names = {path.name for path in (copy.root / "figures").iterdir()}
    assert {"toy.svg", "random-allocs-50-moments.png"} <= names


def test_a_file_format(copy: Copy) -> None:
    copy.write(
        "workloads/importers/toy.py",
        """from allocbench.workloads.events import Events
from allocbench.workloads.vocabulary import Provenance


def is_toy(head):
    return head.startswith(b"toy")


def read(file, path):
    events = Events()
    for line in file.read().splitlines()[1:]:
        events.alloc(int(line))
    return events.trace(Provenance(name=path.stem, kind="imported", source=path.name))
""",
    )
    copy.insert(
        "workloads/formats.py",
        "FORMATS = (\n",
        '    Format("toy log", "a size a line", "importers.toy:is_toy", "importers.toy:read"),\n',
    )
    (copy.root / "trace.log").write_text("toy\n100\n23\n")
    options = ("--allocator", "naive", "--time", "0", "--no-min-capacity", "--json", "-")
    (row,) = json.loads(copy.allocbench("replay", "trace.log", *options))
    assert (row["events"], row["max_load"]) == (2, 123)
    assert "toy log" in copy.allocbench("list", "formats")


def test_a_generated_workload(copy: Copy) -> None:
    copy.insert(
        "workloads/synthetic.py",
        "    return RandomState(seed)\n\n\n",
        '@_synthetic("a test")\n'
        'def toy(events: Events, blocks: int = option("count", 3, "number of blocks")) -> None:\n'
        '    """Equal blocks that are never freed."""\n'
        "    events.alloc_each(blocks, 100)\n\n\n",
    )
    options = ("--allocator", "naive", "--time", "0", "--no-min-capacity", "--json", "-")
    (row,) = json.loads(copy.allocbench("replay", "toy:blocks=7", *options))
    assert row["max_load"] == 700
    assert "toy" in copy.allocbench("list", "workloads")


def test_a_workload_recorded_from_a_program(copy: Copy) -> None:
    """Recorded as the page says, it is a workload like the bundled ones."""
    pytest.importorskip("torch")
    cuda = python()  # skips the test without a CUDA build of PyTorch
    module = """from dataclasses import dataclass

from benchmarks.workshop.models.program import ModelProgram


@dataclass(frozen=True)
class Config:
    bytes: int


def run(config, device, mark):
    import torch

    mark("step")
    torch.empty(config.bytes, dtype=torch.uint8, device=device).add_(1)


PROGRAM = ModelProgram(run, Config(5000), Config(5), "a toy", 0)
if __name__ == "__main__":
    PROGRAM.main()
"""
    ignored = shutil.ignore_patterns("results", "__pycache__", "*.parquet")
    shutil.copytree(ROOT / "benchmarks", copy.root / "benchmarks", ignore=ignored)
    copy.write("benchmarks/workshop/models/toy.py", module)
    for bundled in (ROOT / "workloads" / "data").glob("*.parquet"):
        (copy.root / "workloads" / "data" / bundled.name).symlink_to(bundled)
    copy.insert(
        "workloads/data/workloads.json",
        "{\n",
        '"toy": {"purpose": "inference", "module": "toy", "summary": "one block"},\n',
    )
    traces = """
from benchmarks.workshop.bundled_traces import main
assert main() == 0
sys.argv.append("--check")
sys.exit(main())
"""
    assert "make traces NAMES" in PAGE
    assert "| toy | " in copy.python(traces, "toy", "--python", cuda)
    options = ("--allocator", "naive", "--time", "0", "--no-min-capacity", "--json", "-")
    (row,) = json.loads(copy.allocbench("replay", "toy", *options))
    assert (row["max_load"], row["steps"]) == (5000, 1)
    assert "toy" in copy.allocbench("list", "workloads")


def compile_native(command: list[str]) -> None:
    """Run a compiler; its messages are those of the failed assertion."""
    compiled = subprocess.run(command, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr


def test_a_planner(tmp_path: Path) -> None:
    """The planners are compiled with one more, which the list then finds."""
    native = tmp_path / "allocators" / "native"
    shutil.copytree(ROOT / "allocators" / "native", native)
    assert "allocators/native/planners/NAME.hpp" in PAGE
    (native / "planners" / "toy.hpp").write_text(
        """#pragma once

#include <optional>
#include <span>

#include "planners/planners.hpp"

namespace allocbench {

inline std::optional<Plan> plan_toy(std::span<Lifetime const> lifetimes, Size alignment,
                                    Stop const&) {
  Plan plan;
  for (Lifetime const& block : lifetimes) {
    plan.offsets.push_back(round_up(plan.height, alignment) + alignment);
    plan.height = plan.offsets.back() + block.size;
  }
  return plan;
}

}  // namespace allocbench
"""
    )
    listed = "allocators/native/planners/planners.cpp"
    insert(tmp_path, listed, '"planners/fast_planners.hpp"\n', '#include "planners/toy.hpp"\n')
    entry = '    {"toy", "leaves gaps", "a test", bounded<plan_toy>},\n'
    insert(tmp_path, listed, "kPlanners[] = {\n", entry)
    program = tmp_path / "main.cpp"
    program.write_text(
        """#include <iostream>

#include "planners/planners.hpp"

int main() {
  using namespace allocbench;
  Lifetime const lifetimes[] = {{100, 0, 2}, {50, 1, 3}};
  for (PlannerInfo const& info : planners())
    std::cout << info.name << ' ' << plan(info.name, lifetimes, 64).plan.height << '\\n';
}
"""
    )
    needs = ("graph_plan",)
    sources = [path for path in (native / "planners").glob("*.cpp") if path.stem not in needs]
    sources += [native / "core" / "text.cpp", program]
    command = [os.environ.get("CXX", "g++"), "-std=c++20", "-O0", "-I", str(native)]
    command += [*map(str, sources), "-o", str(tmp_path / "planners")]
    compile_native(command)
    shown = subprocess.run([tmp_path / "planners"], capture_output=True, text=True, check=True)
    heights = dict(line.split() for line in shown.stdout.splitlines())
    assert heights.keys() == {*allocators.planners(), "toy"}
    assert heights["toy"] == "306"  # 64 + 100, rounded up to 192, + 64 + 50
    assert heights["no_reuse"] == "178"


def test_an_allocator(tmp_path: Path) -> None:
    """A copy of naive under another name is registered, compiled, and serves requests."""
    native = tmp_path / "allocators" / "native"
    shutil.copytree(ROOT / "allocators" / "native", native)
    assert "allocators/native/strategies/NAME.hpp" in PAGE
    text = (native / "strategies" / "naive.hpp").read_text(encoding="utf-8")
    toy = text.replace("Naive", "Toy").replace('.name = "naive"', '.name = "toy"')
    assert text.count("Naive") == 2
    assert toy.count('.name = "toy"') == 1
    (native / "strategies" / "toy.hpp").write_text(toy, encoding="utf-8")
    registry = "allocators/native/registry.cpp"
    insert(tmp_path, registry, '"strategies/tlsf.hpp"\n', '#include "strategies/toy.hpp"\n')
    insert(tmp_path, registry, "Slab, Tlsf,", " Toy,")
    program = tmp_path / "main.cpp"
    program.write_text(
        """#include <iostream>

#include "devices/simulated.hpp"
#include "strategies/toy.hpp"

int main() {
  using namespace allocbench;
  SimulatedDevice device(1 << 20, 512, {}, {});
  Toy toy(device, Options("toy", {}, {}));
  Address const address = toy.allocate(1000);
  toy.check();
  std::cout << toy.info().name << ' ' << toy.stats().reserved.current;
  toy.deallocate(address);
  std::cout << ' ' << toy.stats().reserved.current;
}
"""
    )
    compiler = [os.environ.get("CXX", "g++"), "-std=c++20", "-O0", "-I", str(native)]
    sources = [*(native / "core").glob("*.cpp"), program]
    for command in (
        [*compiler, "-fsyntax-only", str(tmp_path / registry)],
        [*compiler, *map(str, sources), "-o", str(tmp_path / "toy")],
    ):
        compile_native(command)
    shown = subprocess.run([tmp_path / "toy"], capture_output=True, text=True, check=True)
    assert shown.stdout == "toy 1000 0"


def test_a_command(copy: Copy) -> None:
    copy.write(
        "allocbench/commands/toy.py",
        '''import typer

EXAMPLES = ("allocbench toy",)


def run() -> None:
    """Say hello."""
    typer.echo("hello")
''',
    )
    copy.insert("allocbench/commands/__init__.py", '    "Traces": "', "toy ")
    assert "Say hello." in copy.allocbench("--help")
    assert copy.allocbench("toy") == "hello\n"
    assert "allocbench toy" in copy.allocbench("toy", "--help")


@pytest.mark.parametrize("name", [info.name for info in allocators.strategies()])
def test_the_places_of_a_strategy(name: str) -> None:
    """What the page lists for a strategy is there for each, and nothing else registers one."""
    class_name = "".join(word.capitalize() for word in name.split("_"))
    files = sorted((ROOT / "allocators/native").glob("registry*.cpp"))
    registry = "".join(file.read_text(encoding="utf-8") for file in files)
    assert registry.count(f'#include "strategies/{name}.hpp"\n') == 1
    listed = re.findall(r"return list<(.*?)>\(\);", registry, flags=re.DOTALL)
    assert re.findall(r"\w+", " ".join(listed)).count(class_name) == 1
    places = ("README.md", "mkdocs.yml", "docs/strategies/" + name + ".md")
    readme, navigation, own_page = ((ROOT / p).read_text(encoding="utf-8") for p in places)
    assert readme.count(f"(docs/strategies/{name}.md)") == 1
    assert navigation.count(f"strategies/{name}.md") == 1
    assert own_page.startswith(f"# {name}\n") or own_page.startswith(f"# `{name}`\n")
    assert f"strategies/{name}.md" not in "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "allocbench").rglob("*.py")
    )


def test_the_files_that_the_page_names_exist() -> None:
    names = re.findall(r"`([a-z_]+/[\w./]+\.\w+)`", tables.on_page_markdown(PAGE))
    named = {name for name in names if "NAME" not in name}
    assert len(named) >= 8
    for name in named:
        assert (ROOT / name).exists(), name
