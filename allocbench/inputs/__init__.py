# SPDX-License-Identifier: Apache-2.0
"""What a question is about: the traces of workloads, files and programs, allocators, a device."""

ALL = "all"
"""All allocators of `list`."""


class Unchosen(str):
    """The spec of a device that nobody chose."""

    __slots__ = ()


DEVICE = Unchosen("sim:80GiB")
"""The default device."""
