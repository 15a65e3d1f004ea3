"""Allocates and frees as a JSON file says, and changes the allocator's settings on the way."""

import json
import sys
from pathlib import Path

import torch

held, seen = {}, []
torch.cuda.init()
total = torch.cuda.get_device_properties(0).total_memory
for kind, *values in json.loads(Path(sys.argv[1]).read_text()):
    address = None
    if kind == "alloc":
        block, size = values
        try:
            held[block] = torch.empty(size, dtype=torch.uint8, device="cuda")
            address = held[block].data_ptr()
        except torch.cuda.OutOfMemoryError:
            pass
    elif kind == "free":
        held.pop(values[0], None)
    elif kind == "settings":
        torch.cuda.memory._set_allocator_settings(values[0])
    elif kind == "fraction":
        torch.cuda.set_per_process_memory_fraction(values[0])
    elif kind == "empty_cache":
        torch.cuda.empty_cache()
    if kind in ("alloc", "free"):
        seen.append([address, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()])
print(json.dumps({"total": total, "seen": seen}))
