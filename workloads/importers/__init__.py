# SPDX-License-Identifier: Apache-2.0
"""Importers of recordings of other programs, one per format; `workloads.formats` lists them.

An importer recognizes its format by the first bytes of a file, not by its name. It returns a valid
trace or raises TraceError with one line.
"""
