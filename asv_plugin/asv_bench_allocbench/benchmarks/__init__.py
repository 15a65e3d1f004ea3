# SPDX-License-Identifier: Apache-2.0
"""The benchmark types; asv imports every module in this package."""
