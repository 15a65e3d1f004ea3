# SPDX-License-Identifier: Apache-2.0
"""The programs of the bundled traces, such as `python -m benchmarks.workshop.models.gpt2`."""
