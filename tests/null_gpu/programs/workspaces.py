"""Programs that need workspaces: convolutions, a Fourier transform, an LSTM, a solver."""

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8)).cuda()
images = torch.randn(2, 3, 16, 16, device="cuda")
for _ in range(3):
    model(images).sum().backward()
torch.fft.fft(torch.zeros(5, 64, dtype=torch.complex64, device="cuda"))
lstm = nn.LSTM(16, 32).cuda()
lstm(torch.randn(7, 2, 16, device="cuda"))[0].sum().backward()
torch.linalg.inv(torch.eye(10, device="cuda"))
