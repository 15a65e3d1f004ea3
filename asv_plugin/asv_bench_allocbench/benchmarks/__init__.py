# SPDX-License-Identifier: Apache-2.0
"""The benchmark types; asv imports each module here."""
