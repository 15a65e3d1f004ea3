# SPDX-License-Identifier: Apache-2.0
"""What other programs read, read back."""
