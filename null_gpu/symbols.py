# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's libraries: which one a function belongs to, and what it does on the null GPU.

A function that the native library implements (`null_cudaMalloc`) is used. A function that only
computes counts as a kernel; one that only sets or destroys something succeeds. All others return an
error and are named on standard error.
"""

from __future__ import annotations

import re

from allocbench.null_gpu.elf import Jump

# Prefix of a function's name -> beginning of its library's SONAME; the first match counts.
_FAMILIES = (
    ("cudnn", "libcudnn.so"),
    ("cublasLt", "libcublasLt.so"),
    ("cublas", "libcublas.so"),
    ("cusparseLt", "libcusparseLt.so"),
    ("cusparse", "libcusparse.so"),
    ("cusolver", "libcusolver.so"),
    ("curand", "libcurand.so"),
    ("cufft", "libcufft.so"),
    ("cupti", "libcupti.so"),
    ("cuFile", "libcufile.so"),
    ("nccl", "libnccl.so"),
    ("nvrtc", "libnvrtc.so"),
    ("nvshmem", "libnvshmem_host.so"),
    ("nvtx", "libnvToolsExt.so"),
    ("nvml", "libnvidia-ml.so"),
    ("__cuda", "libcudart.so"),
    ("cuda", "libcudart.so"),
    ("cu[A-Z]", "libcuda.so"),
)
_STUBBED = re.compile(r"lib(cu|nccl|nvrtc|nvshmem|nvToolsExt|nvidia-ml|nvJitLink)")
ALWAYS = ("libcuda.so.1", "libnvidia-ml.so.1")
"""The driver's libraries, which are opened by name when the program runs."""
EXTENSIONS = ("cublasHgemm",)
"""Functions that extensions of PyTorch import and PyTorch does not: vLLM's `_C`."""

_STATUS = {"libcudnn.so": 3000, "libcublas.so": 15, "libcublasLt.so": 15, "libnccl.so": 5}
_NOT_SUPPORTED = 801  # of the runtime and the driver
_OTHER_STATUS = 10  # not supported, or an internal error, of the others

# Library -> functions that count as a kernel.
_WORK = {
    "libcublas.so": r"cublas([SDCHZ]|I[sdcz]|(Sgemm|Gemm|Dot|Nrm2|Scal|Axpy|Rot).*Ex)\w*",
    "libcublasLt.so": r"cublasLtMatmul",
    "libcudnn.so": r"cudnn(BatchNormalization|RNNForward|RNNBackward|CTCLoss|Pooling|SpatialTf|"
    r"Convolution(Forward|BackwardData|BackwardFilter|BiasActivationForward)$|RestoreDropout)\w*",
    "libcusolver.so": r"cusolverDn(?!Create|Destroy|Set)(?!.*_bufferSize)\w+",
    "libcusparse.so": r"cusparse(?!Create|Destroy|Set|Get)(?!.*[bB]ufferSize)"
    r"(?!X?csrgeam2Nnz|SpGEMM|SpMatGetSize|.*zeroPivot)\w+",
    "libcusparseLt.so": r"cusparseLtMatmul",
    "libcufft.so": r"cufft(XtExec|Exec)\w*",
    "libnccl.so": r"nccl(Recv|Gather|Scatter|AlltoAll|AllToAll)",
}
# Library -> functions that succeed without doing anything.
_HARMLESS = {
    "libcublas.so": r"cublas(Destroy|Set(Stream|Workspace|Math|PointerMode|SmCount|Atomics))\w*",
    "libcublasLt.so": r"cublasLt(\w+Destroy|\w+SetAttribute|Destroy)",
    "libcudnn.so": r"cudnn(Destroy|Set|CnnTrainVersionCheck|Ops)\w*",
    "libcusolver.so": r"cusolverDn(Destroy|Set|Xgesvdj|Xsyevj)\w*",
    "libcusparse.so": r"cusparse(Destroy|Set|Csr|DnMat|SpMatSet|SpSM_destroy|SpSV_destroy)\w*",
    "libcufft.so": r"cufft(Destroy|Set)\w*",
    "libnccl.so": r"nccl(Group(Start|End)|Bcast|Send|CommFinalize|CommDeregister|RedOpDestroy|"
    r"CommWindow(Register|Deregister)|GroupSimulateEnd)",
    "libnvrtc.so": r"nvrtc(AddNameExpression|CompileProgram|DestroyProgram)",
    "libnvToolsExt.so": r"nvtx\w+",
    "libcufile.so": r"cuFile(Driver\w+)",
}
# Functions that are called to find out whether they work; the error is the answer.
_QUIET = {"libcupti.so": 15, "libnvshmem_host.so": 7}


def is_stubbed(soname: str) -> bool:
    """Whether a library that torch needs is NVIDIA's."""
    return _STUBBED.match(soname) is not None


def family(function: str) -> str:
    """The beginning of the SONAME of the library that a function belongs to, or ""."""
    libraries = (library for prefix, library in _FAMILIES if re.match(prefix, function))
    return next(libraries, "")


def library_of(soname: str) -> str:
    """The beginning of a SONAME: "libcudart.so.13" -> "libcudart.so"."""
    return soname.partition(".so")[0] + ".so"


def jump(function: str, library: str, offered: set[str]) -> Jump:
    """What a function of a library does, given what the native library offers."""
    own = f"null_{function}"
    if own in offered:
        return Jump(own)
    if re.fullmatch(_HARMLESS.get(library, "(?!)"), function):
        return Jump("null_harmless")
    if re.fullmatch(_WORK.get(library, "(?!)"), function):
        return Jump("null_work")
    if library in _QUIET:
        return Jump("null_refused", function, _QUIET[library])
    known = _NOT_SUPPORTED if library in ("libcudart.so", "libcuda.so") else _OTHER_STATUS
    return Jump("null_missing", function, _STATUS.get(library, known))
