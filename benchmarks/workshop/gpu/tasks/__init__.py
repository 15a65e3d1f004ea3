# SPDX-License-Identifier: Apache-2.0
"""The tasks, one module each: `python -m benchmarks.workshop.gpu.tasks.hunt --output FILE`."""
