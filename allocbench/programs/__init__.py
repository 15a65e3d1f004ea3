# SPDX-License-Identifier: Apache-2.0
"""Programs as workloads: `-- python train.py` wherever a trace is taken.

arguments.py  `-- COMMAND` and its options on the command line of every command
program.py    what to run, on what; the traces of it, recorded or kept
ran.py        runs it on the GPU of this machine, else on a null GPU
kept.py       recordings in the cache, and whether they still hold
steps.py      which steps were seen, and whether memory still grew
"""
