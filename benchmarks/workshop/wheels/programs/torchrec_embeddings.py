# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "torchrec==1.9.2",
#   "cloudpickle==3.1.3",
#   "fbgemm-gpu==1.9.0",
#   "iopath==0.1.9",
#   "lightning-utilities==0.15.3",
#   "mypy-extensions==1.2.0",
#   "orjson==3.13.0",
#   "portalocker==4.4.2",
#   "pyre-extensions==0.0.32",
#   "pyvers==0.2.3",
#   "tensordict==0.15.3",
#   "torchmetrics==1.0.3",
#   "typing-inspect==0.9.0",
# ]
# [tool.allocbench]
# torch = "2.14.1"
# ///
"""A collection of embedding tables, trained with Adagrad."""

import torch
import torchrec

print("loaded")
config = torchrec.EmbeddingBagConfig(
    name="table", embedding_dim=64, num_embeddings=100_000, feature_names=["feature"]
)
tables = torchrec.EmbeddingBagCollection(device=torch.device("cuda"), tables=[config])
features = torchrec.KeyedJaggedTensor.from_lengths_sync(
    keys=["feature"],
    values=torch.randint(0, 100_000, (512,)).cuda(),
    lengths=torch.full((64,), 8).cuda(),
)
tables(features)
print("called")
optimizer = torch.optim.Adagrad(tables.parameters())
for _ in range(3):
    optimizer.zero_grad()
    tables(features).values().sum().backward()
    optimizer.step()
print("ran")
