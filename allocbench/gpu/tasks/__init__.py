# SPDX-License-Identifier: Apache-2.0
"""The tasks, one module each: `python -m allocbench.gpu.tasks.hunt --output FILE`."""
