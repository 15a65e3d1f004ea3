# SPDX-License-Identifier: Apache-2.0
"""Tables, Markdown and the HTML report."""
