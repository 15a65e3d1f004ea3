# SPDX-License-Identifier: Apache-2.0
"""The league with original allocators and planners."""
