# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "spconv-cu120==2.3.6",
#   "ccimport==0.4.4",
#   "cumm-cu120==0.6.3",
#   "fire==0.7.1",
#   "lark==1.3.1",
#   "ninja==1.13.2",
#   "pccm==0.4.16",
#   "portalocker==4.4.2",
#   "pybind11==3.1.0",
#   "termcolor==3.3.0",
# ]
# [tool.allocbench]
# torch = "2.9.1"
# ///
"""A sparse convolution of points in a volume, forward and backward."""

import spconv.pytorch
import torch

print("loaded")
places = torch.arange(1000, dtype=torch.int32)
indices = torch.stack([places * 0, places % 32, places // 32, places * 0], dim=1).cuda()


def points() -> spconv.pytorch.SparseConvTensor:
    """A thousand points with 16 features each."""
    features = torch.zeros(1000, 16, device="cuda")
    return spconv.pytorch.SparseConvTensor(features, indices, [32, 32, 32], 1)


layer = spconv.pytorch.SubMConv3d(16, 32, 3).cuda()
layer(points())
print("called")
for _ in range(3):
    layer(points()).features.sum().backward()
print("ran")
