# SPDX-License-Identifier: Apache-2.0
"""What is measured on a real GPU: `make gpu`, or `python -m benchmarks.workshop.gpu`.

Each measurement is a task: a process of its own, which writes one JSON file. A task whose file is
there is not run again. Nothing here is needed to use allocbench.
"""
