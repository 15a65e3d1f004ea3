# SPDX-License-Identifier: Apache-2.0
"""What other programs record, read as traces."""
