# SPDX-License-Identifier: Apache-2.0
"""The stand-ins for NVIDIA's libraries: their ELF format, and the targets of their functions."""

import ctypes
import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from allocbench.null_gpu import elf, inside, stubs, torch_build, torch_import
from allocbench.null_gpu.launch import core
from allocbench.null_gpu.stubs import CORE_SONAME, libraries_for
from tests.null_gpu.core import seen

FUNCTIONS = {
    "cudaGetDeviceCount": ("libcudart.so.13", elf.Jump("null_cudaGetDeviceCount")),
    "cudaOld": ("libcudart.so.11", elf.Jump("null_harmless")),
    "cudaFooBar": ("", elf.Jump("null_missing", "cudaFooBar", 801)),
}


# name, type, flags, alignment, size, section it refers to, information, size of an entry
SECTIONS = [
    (".hash", "SHT_HASH", 2, 8, 4 * (2 + 3 + 7), ".dynsym", 0, 4),
    (".dynsym", "SHT_DYNSYM", 2, 8, 7 * 24, ".dynstr", 1, 24),
    (".dynstr", "SHT_STRTAB", 2, 1, None, "", 0, 0),
    (".gnu.version", "SHT_GNU_versym", 2, 2, 7 * 2, ".dynsym", 0, 2),
    (".gnu.version_d", "SHT_GNU_verdef", 2, 8, 3 * 28, ".dynstr", 3, 0),
    (".rela.dyn", "SHT_RELA", 2, 8, 3 * 24, ".dynsym", 0, 24),
    (".text", "SHT_PROGBITS", 6, 16, 8 + 8 + 24 + len("cudaFooBar") + 1, "", 0, 0),
    (".dynamic", "SHT_DYNAMIC", 3, 4096, 16 * 16, ".dynstr", 0, 16),
    (".got", "SHT_PROGBITS", 3, 8, 3 * 8, "", 0, 8),
    (".shstrtab", "SHT_STRTAB", 0, 1, None, "", 0, 0),
]


def test_a_library_has_the_names_and_versions_it_was_given() -> None:
    data = elf.shared_library("libcudart.so.13", CORE_SONAME, FUNCTIONS)
    library: Any = ELFFile(io.BytesIO(data))
    assert library.header["e_machine"] == "EM_X86_64"
    _, *sections = library.iter_sections()
    end = 64 + 4 * 56  # after the headers of the file and its segments
    for section, expected in zip(sections, SECTIONS, strict=True):
        name, kind, flags, align, size, link, info, entry = expected
        begin = -(-end // align) * align
        address = begin if flags else 0  # as in the file, if it is in memory at all
        end = begin + (len(section.data()) if size is None else size)
        assert section.header == {
            "sh_name": section["sh_name"], "sh_type": kind, "sh_flags": flags, "sh_addr": address,
            "sh_offset": begin, "sh_size": end - begin, "sh_info": info, "sh_addralign": 8,
            "sh_link": next((n for n, row in enumerate(SECTIONS, 1) if row[0] == link), 0),
            "sh_entsize": entry,
        }, name  # fmt: skip
        assert section.name == name
    assert library.header["e_shstrndx"] == len(SECTIONS)
    parts = {section.name: section for section in sections}
    tags = {tag.entry.d_tag: tag for tag in parts[".dynamic"].iter_tags()}
    assert tags["DT_SONAME"].soname == "libcudart.so.13"
    assert tags["DT_NEEDED"].needed == CORE_SONAME
    sizes = [len(parts[name].data()) for name in (".dynstr", ".rela.dyn")]
    found = [tags[name].entry.d_val for name in ("DT_STRSZ", "DT_RELASZ", "DT_VERDEFNUM")]
    assert found == [*sizes, 3]
    targets = [(jump.target, 0, 0) for _, jump in FUNCTIONS.values()]
    lengths = {name: 6 if one.name is None else 18 for name, (_, one) in FUNCTIONS.items()}
    places = dict(zip(FUNCTIONS, (0, 8, 16), strict=True))  # in the code
    code = parts[".text"]["sh_offset"]
    functions = [(name, code + places[name], lengths[name]) for name in FUNCTIONS]
    table = parts[".dynsym"]
    _, *symbols = table.iter_symbols()
    assert [(one.name, one["st_value"], one["st_size"]) for one in symbols] == [
        *sorted(targets),
        *functions,
    ]
    for name in (symbol.name for symbol in symbols):
        assert parts[".hash"].get_symbol(name).name == name
        defined = "SHN_UNDEF" if name.startswith("null_") else 7
        (symbol,) = table.get_symbol_by_name(name)
        assert tuple(symbol["st_info"].values()) == ("STB_GLOBAL", "STT_FUNC")
        assert symbol["st_shndx"] == defined
    unused = [data[code + begin : code + end] for begin, end in ((6, 8), (14, 16), (34, 40))]
    assert b"".join(unused) == b"\xcc" * 10  # breakpoints
    versions = [
        (version["vd_ndx"], [name.name for name in names])
        for version, names in parts[".gnu.version_d"].iter_versions()
    ]
    assert versions == [
        (1, ["libcudart.so.13"]),
        (2, ["libcudart.so.11"]),
        (3, ["libcudart.so.13"]),
    ]
    begin, text_end = parts[".dynamic"]["sh_offset"], code + parts[".text"]["sh_size"]
    end = parts[".got"]["sh_offset"] + 3 * 8
    segments = [[*one.header.values()] for one in library.iter_segments()]
    assert segments == [  # kind, rights, place in the file and in memory, sizes, alignment
        ["PT_LOAD", 5, 0, 0, 0, text_end, text_end, 4096],
        ["PT_LOAD", 6, begin, begin, begin, end - begin, end - begin, 4096],
        ["PT_DYNAMIC", 6, begin, begin, begin, 256, 256, 8],
        ["PT_GNU_STACK", 6, 0, 0, 0, 0, 0, 16],
    ]


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


@pytest.mark.parametrize(
    ("cuda", "packages", "system", "looked_for", "replaced"),
    [
        ("'13.0'", "", "", "libcudnn.so.9", True),
        ("'13.0'", "cudnn.so.9 cublas.so.13 cudart.so.13", "", "", False),
        ("'12.8'", "cudnn.so.9", both := "libcublas.so.12 libcudart.so.12", both, False),
        ("'13.0'", "cudnn.so.9 cublas.so.12 cudart.so.13", "", "libcublas.so.13", True),
        ("'13.0'", "cudart.so.13", "libcublas.so.13", "libcudnn.so.9", True),
        ("None", "", "", "", False),  # not for CUDA
    ],
)
def test_libraries_that_pytorch_lacks_are_replaced_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    cuda: str, packages: str, system: str, looked_for: str, replaced: bool,
) -> None:  # fmt: skip
    (pytorch(tmp_path, cuda=cuda) / "__init__.py").touch()
    for name in packages.split():
        (tmp_path / f"nvidia/{name[:6]}/lib").mkdir(parents=True)
        (tmp_path / f"nvidia/{name[:6]}/lib/lib{name}").touch()
    made, asked = list[Any](), list[str]()

    def load(name: str) -> None:
        asked.append(name)
        if name not in system.split():
            raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(inside, "Process", lambda told, package: made.append((told, package)))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "meta_path", before := [*sys.meta_path])
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.delenv("ALLOCBENCH_NULL", raising=False)
    torch_import.allow()  # it is too late
    del sys.modules["torch"]
    with monkeypatch.context() as null_gpu:
        null_gpu.setenv("ALLOCBENCH_NULL", "{}")
        torch_import.allow()
    finders = [*before]
    torch_import.allow()
    torch_import.allow()
    assert before[1:] == finders
    importlib.import_module("json.tool")
    assert before[1:] == finders
    assert importlib.import_module("torch").__file__ == str(tmp_path / "torch/__init__.py")
    assert before == finders
    assert [(told["settings"]["count"], package) for told, package in made] == (
        [(0, tmp_path / "torch")] if replaced else []
    )
    assert asked == looked_for.split()


def test_links_to_libraries_elsewhere_are_read(tmp_path: Path) -> None:
    for place in ("lib", "a", "z"):
        (tmp_path / place).mkdir()
        data = elf.shared_library(f"lib{place}.so", f"lib{place}-needs.so", FUNCTIONS)
        (tmp_path / place / f"lib{place}.so").write_bytes(data)
        (tmp_path / f"lib/link{place}.so").symlink_to(tmp_path / place / f"lib{place}.so")
    (tmp_path / "lib/libz-needs.so").write_bytes(data)
    (tmp_path / "lib/nothing.so").symlink_to("not-there.so")
    found = elf.read(tmp_path / "lib")
    assert found.needed == {"liba-needs.so", "liblib-needs.so"}  # the last one is there
    assert found.symbols == dict.fromkeys((one.target for _, one in FUNCTIONS.values()), ("", ""))


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
        "libnvidia-ml.so.1", "libcusparse.so.12", "libnvJitLink.so.13",
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
