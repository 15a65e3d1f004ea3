# SPDX-License-Identifier: Apache-2.0
"""Many runs in many processes, on this machine or on a Dask cluster."""
