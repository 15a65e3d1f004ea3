# SPDX-License-Identifier: Apache-2.0
"""The null GPU: PyTorch's CUDA build runs without a GPU; kernels do nothing.

    device.py     `null:h100,count=2` -> the machine that a program sees
    launch.py     the environment of such a program, and what it left behind
    inside/       runs in each process of the program: libraries before torch, limits after it
    torch_import.py   such a build of PyTorch can be imported here
    stubs.py      the stand-ins for NVIDIA's libraries for one torch, created once and cached
    torch_build.py   the version of that torch
    elf.py        reads its imports from those libraries, and writes a shared library

They all jump to a library that is built from native/.
"""
