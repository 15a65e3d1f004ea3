# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "torchaudio==2.11.0",
# ]
# [tool.allocbench]
# torch = "2.11.0"
# ///
"""A spectrogram; a conformer, trained with AdamW."""

import torch
import torchaudio

print("loaded")
torchaudio.transforms.MelSpectrogram().cuda()(torch.zeros(4, 16_000, device="cuda"))
print("called")
model = torchaudio.models.Conformer(80, 4, 256, 4, 31).cuda()
optimizer = torch.optim.AdamW(model.parameters())
lengths = torch.full((8,), 400, device="cuda")
for _ in range(3):
    model(torch.zeros(8, 400, 80, device="cuda"), lengths)[0].sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("ran")
