"""The checks of checks.py for one GPU of any size, and computed values: limited_checks.py MIB

MIB is what each process may use. The checks run out of memory with about 1,500.
"""

import sys

import checks
import torch

NEED_TWO_GPUS = ("before_cuda", "two_gpus", "distributed")
BEGIN_BEFORE_CUDA = ("forked",)


@checks.check
def computed():
    """Blocks are reused on two streams while kernels compute; on a null GPU all values are 0."""
    torch.manual_seed(0)
    main, side, sums = torch.cuda.current_stream(), torch.cuda.Stream(), []
    weight = torch.randn(256, 256, device="cuda")
    for step in range(20):
        x = torch.randn(64 + step, 256, device="cuda")
        side.wait_stream(main)
        with torch.cuda.stream(side):
            noise = torch.cumsum(x, 0).sigmoid()
            x.record_stream(side)
        y = torch.relu(x @ weight).softmax(1)
        main.wait_stream(side)
        sums.append((y * noise).sum())
        noise.record_stream(main)
        del x, y, noise
    return {"sums": torch.stack(sums).tolist()}


def limited(name, queue):
    if name not in BEGIN_BEFORE_CUDA:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(int(limit) * checks.MIB / total)
    queue.put(checks.CHECKS[name]())


limit = sys.argv.pop()
sys.argv += [name for name in checks.CHECKS if name not in NEED_TWO_GPUS]
checks._run = limited
checks.main()
