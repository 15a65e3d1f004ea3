# SPDX-License-Identifier: Apache-2.0
"""What other programs record -> a trace: one file for each format, named in workloads.formats.

An importer knows its format by the first bytes of a file, whatever the file is called. It makes a
valid trace or raises TraceError in one line.
"""
