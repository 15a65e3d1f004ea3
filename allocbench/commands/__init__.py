# SPDX-License-Identifier: Apache-2.0
"""One module per command, named after it: `run` is the command, EXAMPLES go into its help."""
