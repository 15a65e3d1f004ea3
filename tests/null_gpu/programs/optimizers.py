"""Three steps with two optimizers, as of a GAN; annotates its own steps if it is told to."""

import sys

import torch

models = [torch.nn.Linear(512, 512, device="cuda") for _ in range(2)]
optimizers = [torch.optim.Adam(model.parameters()) for model in models]
side = torch.cuda.Stream()
for _ in range(3):
    if "annotate" in sys.argv:
        with torch.profiler.record_function("step"):
            pass
    for model, optimizer in zip(models, optimizers, strict=True):
        model(torch.randn(64, 512, device="cuda")).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.cuda.stream(side):
        noise = torch.randn(1 << 20, device="cuda")
