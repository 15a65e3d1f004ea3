# SPDX-License-Identifier: Apache-2.0
"""The null GPU: PyTorch's CUDA build runs where there is no GPU; kernels do nothing.

    device.py     `null:h100,count=2` -> the machine that a program shall see
    launch.py     the environment of such a program, and what it left behind
    hook/         runs in each Python of the program: libraries before torch, limits after it
    stubs.py      the stand-ins of NVIDIA's libraries for one torch, made once and cached
    torch_build.py, imports.py    what that torch is and asks of those libraries
    symbols.py    which function does what in them
    elf.py        writes a shared library

The library that they all jump to is built from allocators/native/null_gpu.
"""
