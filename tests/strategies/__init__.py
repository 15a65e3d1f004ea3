# SPDX-License-Identifier: Apache-2.0
"""What makes each of the strategies itself."""
