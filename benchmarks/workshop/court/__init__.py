# SPDX-License-Identifier: Apache-2.0
"""Public reports on allocators, as sequences of our own, and what becomes of them here."""
