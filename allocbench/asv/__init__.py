# SPDX-License-Identifier: Apache-2.0
"""What the asv commands do: run benchmarks on commits, describe a machine, clean results."""
