# SPDX-License-Identifier: Apache-2.0
"""The values of a trace's `op` array. The native core has the same in core/types.hpp."""

ALLOC, FREE, MARK, TRIM = range(4)
POOL_CREATE, POOL_ENTER, POOL_LEAVE, CAPTURE_BEGIN, CAPTURE_END, POOL_RELEASE = range(4, 10)
