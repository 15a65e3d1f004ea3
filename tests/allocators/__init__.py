# SPDX-License-Identifier: Apache-2.0
"""Tests of allocators: devices, replay, programs, adapters, and every strategy."""
