# SPDX-License-Identifier: Apache-2.0
"""The parts of the documentation that come from the code: tables, pictures, the screenshot."""
