# SPDX-License-Identifier: Apache-2.0
"""What users write: options, and names of workloads, files and programs, turned into traces."""
