# SPDX-License-Identifier: Apache-2.0
"""Recordings of other programs, read as traces."""
