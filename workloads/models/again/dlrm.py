# SPDX-License-Identifier: Apache-2.0
"""DLRM trained on longer bags."""

from dataclasses import replace

from allocbench.workloads.models import dlrm

PROGRAM = replace(dlrm.PROGRAM, full=replace(dlrm.PROGRAM.full, longest_bag=9))
