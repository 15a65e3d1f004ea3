# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "nvidia-dali-cuda120==2.4.0",
#   "astunparse==1.6.3",
#   "gast==0.7.0",
#   "libcst==1.9.0",
#   "makefun==1.16.0",
#   "nvidia-nvimgcodec-cu12==0.9.0.20",
#   "nvtx==0.2.17",
#   "optree==0.20.0",
#   "six==1.17.0",
# ]
# [tool.allocbench]
# torch = "2.9.1"
# ///
"""A pipeline that makes random numbers."""

import torch
from nvidia.dali import fn, pipeline_def

print("loaded")
torch.cuda.init()


@pipeline_def(batch_size=8, num_threads=1, device_id=0)
def numbers() -> object:
    """Numbers of the GPU."""
    return fn.random.uniform(range=[0, 1], shape=[512, 512], device="gpu")


pipeline = numbers()
pipeline.build()
print("called")
for _ in range(3):
    pipeline.run()
print("ran")
