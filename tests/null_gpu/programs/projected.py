# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers that project what they remember: their weights lie one after another."""

import json

import torch
from torch import nn

layers = nn.LSTM(64, 128, 2, bidirectional=True, proj_size=32).cuda()
out, (state, cell) = layers(torch.randn(5, 3, 64, device="cuda"))
out.sum().backward()
seen = [list(found.shape) for found in (out, state, cell, layers.weight_hr_l1_reverse.grad)]
places = [weight.storage_offset() for weight in layers.parameters()]
print(json.dumps({"shapes": seen, "distinct": len(set(places)) == len(places)}))
