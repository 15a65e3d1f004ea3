# SPDX-License-Identifier: Apache-2.0
"""The stand-ins for NVIDIA's libraries: their ELF format, and the targets of their functions."""

import io
import json
import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from allocbench.null_gpu import elf, stubs, torch_build
from allocbench.null_gpu.launch import core
from allocbench.null_gpu.stubs import CORE_SONAME, libraries_for
from tests.null_gpu.core import seen

FUNCTIONS = {
    "cudaGetDeviceCount": ("libcudart.so.13", elf.Jump("null_cudaGetDeviceCount")),
    "cudaOld": ("libcudart.so.11", elf.Jump("null_harmless")),
    "cudaFooBar": ("", elf.Jump("null_missing", "cudaFooBar", 801)),
}


def test_a_library_has_the_names_and_versions_it_was_given() -> None:
    data = elf.shared_library("libcudart.so.13", CORE_SONAME, FUNCTIONS)
    library: Any = ELFFile(io.BytesIO(data))
    assert library.header["e_machine"] == "EM_X86_64"
    tags = {tag.entry.d_tag: tag for tag in library.get_section_by_name(".dynamic").iter_tags()}
    assert tags["DT_SONAME"].soname == "libcudart.so.13"
    assert tags["DT_NEEDED"].needed == CORE_SONAME
    sizes = {
        name: library.get_section_by_name(name)["sh_size"] for name in (".dynstr", ".rela.dyn")
    }
    found = [tags[name].entry.d_val for name in ("DT_STRSZ", "DT_RELASZ", "DT_VERDEFNUM")]
    assert found == [*sizes.values(), 3]
    table = library.get_section_by_name(".dynsym")
    kinds = {
        tuple(one["st_info"].values()) for one in table.iter_symbols() if one.name in FUNCTIONS
    }
    assert kinds == {("STB_GLOBAL", "STT_FUNC")}
    defined = {symbol.name for symbol in table.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"}
    assert defined == FUNCTIONS.keys()
    versions = [
        (version["vd_ndx"], [name.name for name in names])
        for version, names in library.get_section_by_name(".gnu.version_d").iter_versions()
    ]
    assert versions == [
        (1, ["libcudart.so.13"]),
        (2, ["libcudart.so.11"]),
        (3, ["libcudart.so.13"]),
    ]
    assert library.header["e_shstrndx"] == library.num_sections() - 1
    assert library.get_section(library.num_sections() - 1).name == ".shstrtab"
    infos = {one.name: one["sh_info"] for one in library.iter_sections() if one["sh_info"]}
    assert infos == {".dynsym": 1, ".gnu.version_d": 3}
    (stack,) = library.iter_segments("PT_GNU_STACK")
    assert stack["p_flags"] == 6  # not executable
    segments = [segment.header for segment in library.iter_segments("PT_LOAD")]
    pages = [
        {*range(one["p_vaddr"] >> 12, one["p_vaddr"] + one["p_memsz"] - 1 >> 12)}
        for one in segments
    ]
    assert all(not one & other for one, other in combinations(pages, 2))
    assert all(segment["p_offset"] == segment["p_vaddr"] for segment in segments)
    assert not any(segment["p_flags"] & 3 == 3 for segment in segments)  # writable or executable


def test_its_functions_jump_to_their_targets(tmp_path: Path) -> None:
    path = tmp_path / "libcudart.so.13"
    path.write_bytes(elf.shared_library(path.name, CORE_SONAME, FUNCTIONS))
    program = f"""
import ctypes
core = ctypes.CDLL({str(core())!r})
core.null_configure(b"count=3")
library = ctypes.CDLL({str(path)!r})
count = ctypes.c_int()
library.cudaGetDeviceCount(ctypes.byref(count))
print(count.value, library.cudaOld(), library.cudaFooBar(), library.cudaFooBar())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "3 0 801 801\n"
    assert done.stderr == (
        "allocbench: the null GPU does not implement cudaFooBar: it returns error 801\n"
    )


def test_a_linker_takes_it(tmp_path: Path) -> None:
    path = tmp_path / "libcudart.so"
    path.write_bytes(elf.shared_library("libcudart.so.13", CORE_SONAME, FUNCTIONS))
    source = tmp_path / "main.cpp"
    source.write_text(
        'extern "C" int cudaGetDeviceCount(int*);\nint f(int* n) { return cudaGetDeviceCount(n); }'
    )
    command = [os.environ.get("CXX", "g++"), "-shared", "-fPIC", str(source), "-L", str(tmp_path)]
    command += ["-lcudart", "-o", str(tmp_path / "user.so"), "-Wl,--no-undefined"]
    command += ["-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "user.so").open("rb") as file:
        user: Any = ELFFile(file)
        tags = user.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")
        assert "libcudart.so.13" in {tag.needed for tag in tags}


def pytorch(folder: Path, version: str = "2.13.0+cu130", cuda: str = "'13.0'") -> Path:
    """A package of PyTorch with one library, which calls two functions of CUDA."""
    package = folder / "torch"
    (package / "lib").mkdir(parents=True)
    (package / "version.py").write_text(f"__version__ = '{version}'\ncuda: str = {cuda}\n")
    (folder / "libcudart.so").write_bytes(
        elf.shared_library("libcudart.so.13", CORE_SONAME, FUNCTIONS)
    )
    source = folder / "main.cpp"
    source.write_text(
        'extern "C" int cudaGetDeviceCount(int*);\nextern "C" int cudaOld();\n'
        "int f(int* n) { return cudaGetDeviceCount(n) + cudaOld(); }"
    )
    library = package / "lib/libtorch_cuda.so"
    line = [os.environ.get("CXX", "g++"), "-shared", "-fPIC", str(source), "-o", str(library)]
    line += ["-L", str(folder), "-lcudart", "-Wl,--unresolved-symbols=ignore-in-shared-libs"]
    subprocess.run(line, check=True)
    return package


@pytest.mark.parametrize(
    ("requirements", "cudnn", "nccl"),
    [
        (
            "nvidia-cudnn-cu13 (==9.20.1.48)\nRequires-Dist: nvidia-nccl-cu13 (==2.28.9)",
            92001,
            22809,
        ),
        ("nvidia-cudnn-cu12==9.1.0.70; x\nRequires-Dist: nvidia-nccl-cu12 ==2.21.5", 90100, 22105),
        ("sympy>=1.13\nName: nvidia-cudnn-cu12==9.9.9", 91002, 22705),
    ],
)
def test_a_build_of_pytorch_says_what_it_was_built_with(
    tmp_path: Path, requirements: str, cudnn: int, nccl: int
) -> None:
    package = pytorch(tmp_path)
    (tmp_path / "torch-2.13.0.dist-info").mkdir()
    (tmp_path / "torch-2.13.0.dist-info/METADATA").write_text(f"Requires-Dist: {requirements}\n")
    found = torch_build.find(package)
    assert (found.version, found.cuda) == ("2.13.0+cu130", 13000)
    assert (found.cudnn, found.nccl, found.libraries) == (cudnn, nccl, package / "lib")


@pytest.mark.parametrize(
    ("version", "cuda", "number"), [("2.5.0", "'12.8'", 12080), ("2.15.2+cu130", "'13.0'", 13000)]
)
def test_the_null_gpu_works_with_builds_from_2_5_to_2_15(
    tmp_path: Path, version: str, cuda: str, number: int
) -> None:
    """Others are refused (see test_device.py), and those that lack the part for CUDA."""
    package = pytorch(tmp_path, version, cuda)
    assert torch_build.find(package).cuda == number
    (package / "lib/libtorch_cuda.so").unlink()
    with pytest.raises(torch_build.NullGpuError, match="is not built for CUDA"):
        torch_build.find(package)


def test_libraries_are_made_once_for_a_build(tmp_path: Path) -> None:
    """Also where another process was faster; a version may be hidden."""
    build = torch_build.find(pytorch(tmp_path))
    version = ("libcudart.so.13", "libcudart.so.13")
    wanted = {"cudaGetDeviceCount": version, "cudaOld": (version[0], "libcudart.so.11")}
    library = build.libraries / "libtorch_cuda.so"
    with library.open("rb") as file:
        at: Any = ELFFile(file).get_section_by_name(".gnu.version")
        place, size = at["sh_offset"], at["sh_size"]
    content = bytearray(library.read_bytes())
    for hidden in (0, 0x80):
        for n in range(place + 1, place + size, 2):
            content[n] |= hidden
        library.write_bytes(content)
        found = elf.read(build.libraries).symbols
        assert {name: found[name] for name in wanted} == wanted
    into = tmp_path / "made/libraries"
    for _ in range(2):
        stubs.make(build, core(), into)
        assert [*into.parent.iterdir()] == [into]
    about = json.loads((into / stubs.ABOUT).read_text())
    assert about["settings"] == {
        "cuda_version": 13000,
        "cudnn_version": build.cudnn,
        "nccl_version": build.nccl,
    }
    assert {*about["libraries"]} == {one.name for one in into.iterdir()} - {
        "about.json",
        "libcuda.so",
    }
    assert (into / "libcuda.so").resolve() == into / "libcuda.so.1"
    assert all((one.stat().st_mode & 0o777) == 0o644 for one in into.iterdir())


def test_the_hash_is_that_of_the_abi() -> None:
    assert elf.hash_of("printf") == 0x077905A6  # the example of the System V ABI
    assert elf.hash_of("exit") == 0x0006CF04


def test_every_library_has_the_functions_that_torch_needs_and_the_core_offers() -> None:
    wanted = elf.Imports(
        needed={
            "libcudart.so.13",
            "libcublas.so.13",
            "libnccl.so.2",
            "libc.so.6",
            "libcurand.so.10",
        },
        symbols={
            "cudaMalloc": ("libcudart.so.13", "libcudart.so.13"),
            "cublasSgemm_v2": ("libcublas.so.13", "libcublas.so.13"),
            "cusparseSpMM": ("libcusparse.so.12", "libcusparse.so.12"),
            "ncclAllReduce": ("", ""),
            "ncclNewest": ("", ""),
            "printf": ("libc.so.6", "GLIBC_2.2.5"),
        },
        named={"cuMulticastCreate", "nvmlDeviceGetFoo", "cuboid"},
    )
    offered = {"null_cudaMalloc", "null_cudaFree", "null_ncclAllReduce", "null_cuInit"}
    made = libraries_for(wanted, offered)
    assert made.keys() == {
        "libcudart.so.13", "libcublas.so.13", "libnccl.so.2", "libcurand.so.10", "libcuda.so.1",
        "libnvidia-ml.so.1", "libcusparse.so.12",
    }  # fmt: skip
    for library, function in (
        ("libcublas.so.13", "cublasGetStatusString"),
        ("libcusparse.so.12", "cusparseSpGEMM_compute"),
        ("libcurand.so.10", "curandGenerateUniform"),
        ("libnccl.so.2", "ncclMemAlloc"),
    ):
        assert function in made[library]  # torch does not need it
    version = "libcudart.so.13"
    runtime = made["libcudart.so.13"]
    assert runtime["cudaMalloc"] == (version, elf.Jump("null_cudaMalloc"))
    assert runtime["cudaFree"] == (version, elf.Jump("null_cudaFree"))  # torch does not need it
    assert runtime["cudaGetDevice"] == (version, elf.Jump("null_missing", "cudaGetDevice", 801))
    extension = made["libcublas.so.13"]["cublasHgemm"]  # torch does not need it
    assert extension == ("libcublas.so.13", elf.Jump("null_work"))
    assert made["libnccl.so.2"]["ncclNewest"] == ("", elf.Jump("null_missing", "ncclNewest", 5))
    assert made["libcuda.so.1"]["cuInit"] == ("", elf.Jump("null_cuInit"))
    missing = elf.Jump("null_missing", "cuMulticastCreate", 801)
    assert made["libcuda.so.1"]["cuMulticastCreate"] == ("", missing)
    assert "nvmlDeviceGetFoo" in made["libnvidia-ml.so.1"]


@pytest.mark.parametrize(
    ("function", "library", "target"),
    [
        ("cublasSgemm_v2", "libcublas.so", "null_work"),
        ("cublasGemmEx", "libcublas.so", "null_work"),
        ("cublasSetStream_v2", "libcublas.so", "null_harmless"),
        ("cublasXtCreate", "libcublas.so", "null_missing"),
        ("cublasLtMatmul", "libcublasLt.so", "null_work"),
        ("cublasLtMatmulAlgoGetIds", "libcublasLt.so", "null_missing"),
        ("cudnnSetStream", "libcudnn.so", "null_harmless"),
        ("cudnnConvolutionForward", "libcudnn.so", "null_work"),
        ("cudnnGetConvolutionForwardWorkspaceSize", "libcudnn.so", "null_missing"),
        ("cusolverDnSgetrf", "libcusolver.so", "null_work"),
        ("cusolverDnSfoo_bufferSize", "libcusolver.so", "null_missing"),
        ("cusparseSpMM", "libcusparse.so", "null_work"),
        ("cusparseSpGEMM_workEstimation", "libcusparse.so", "null_missing"),
        ("ncclGroupStart", "libnccl.so", "null_harmless"),
        ("cuptiSubscribe", "libcupti.so", "null_refused"),
    ],
)
def test_an_unknown_function_returns_an_error(function: str, library: str, target: str) -> None:
    assert stubs.jump(function, library, set()).target == target


def test_the_core_exports_only_its_own_functions() -> None:
    assert {name for name in elf.exported(core()) if not name.startswith("null_")} == set()


def test_batched_functions_of_cublas_say_on_the_host_that_their_arguments_are_valid() -> None:
    program = """
for name, index in (("geqrf", 6), ("getrs", 9), ("gels", 9)):
    for letter in "SDCZ":
        info = c_int(-7)
        arguments = [c_void_p()] * index + [byref(info), c_void_p(), c_int(4)]
        status = getattr(gpu, f"null_cublas{letter}{name}Batched")(*arguments)
        seen[letter + name] = [status, info.value]
"""
    found = seen(program)
    assert len(found) == 12
    assert set(map(tuple, found.values())) == {(0, 0)}
