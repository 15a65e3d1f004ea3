# SPDX-License-Identifier: Apache-2.0
"""What other programs read: a trace, or a trace as an allocator has served it, in their formats."""
