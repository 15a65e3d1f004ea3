# SPDX-License-Identifier: Apache-2.0
"""Results of asv: comparisons of commits, the record of a machine, clean files."""
