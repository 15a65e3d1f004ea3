# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "fbgemm-gpu==1.9.0",
# ]
# [tool.allocbench]
# torch = "2.14.1"
# ///
"""Embedding tables that their backward pass updates."""

import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    EmbeddingLocation,
    SplitTableBatchedEmbeddingBagsCodegen,
)

print("loaded")
lengths = torch.ones(100, dtype=torch.int64, device="cuda")
torch.ops.fbgemm.asynchronous_complete_cumsum(lengths)
print("called")
tables = SplitTableBatchedEmbeddingBagsCodegen(
    [(100_000, 128, EmbeddingLocation.DEVICE, ComputeDevice.CUDA)] * 4,
    optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
    device=torch.device("cuda"),
)
for _ in range(3):
    indices = torch.randint(0, 100_000, (4 * 256 * 8,)).cuda()
    offsets = torch.arange(0, 4 * 256 * 8 + 1, 8).cuda()
    tables(indices, offsets).sum().backward()
print("ran")
