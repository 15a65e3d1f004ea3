# SPDX-License-Identifier: Apache-2.0
"""Export traces, and traces served by an allocator, in the formats of other programs."""
