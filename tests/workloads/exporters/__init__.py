# SPDX-License-Identifier: Apache-2.0
"""Exports for other programs, read back."""
