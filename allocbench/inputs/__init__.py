# SPDX-License-Identifier: Apache-2.0
"""What a question is about: the traces of workloads, files and programs, allocators, a device."""

ALL = "all"
"""All allocators of `list`."""
DEVICE = "sim:80GiB"
"""The default device."""
