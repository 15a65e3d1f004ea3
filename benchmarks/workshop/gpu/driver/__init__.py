# SPDX-License-Identifier: Apache-2.0
"""What the CUDA driver answers to sequences of calls, to compare a real driver with the null one.

Each scenario is a function that runs in a process of its own and prints one JSON line for each
call. `python -m benchmarks.workshop.gpu.driver.compare` shows where two results differ.
"""
