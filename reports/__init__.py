# SPDX-License-Identifier: Apache-2.0
"""Result rows to tables, figures and one HTML file; knows no allocator and no trace."""
