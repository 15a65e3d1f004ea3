# SPDX-License-Identifier: Apache-2.0
"""Output of any command: files, standard output, the terminal."""
