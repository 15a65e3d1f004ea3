"""What a program sees of a card's memory, up to its end."""

import json
import warnings

import torch
from torch.cuda._memory_viz import segment_plot, trace_plot

GIB = 1 << 30

warnings.simplefilter("ignore")
seen = {"available": torch.cuda.is_available(), "devices": torch.cuda.device_count()}
properties = torch.cuda.get_device_properties(0)
seen["name"], seen["total"] = properties.name, properties.total_memory
seen["capability"] = torch.cuda.get_device_capability()
seen["multiprocessors"] = properties.multi_processor_count
torch.zeros(1, device="cuda")
seen["free"], seen["total of mem_get_info"] = torch.cuda.mem_get_info()

torch.cuda.memory._record_memory_history(max_entries=10000)
kept = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
cached = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
del cached
seen["allocated"] = torch.cuda.memory_allocated()
seen["reserved"] = torch.cuda.memory_reserved()
too_much = properties.total_memory - GIB
try:
    torch.empty(too_much, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError as error:
    seen["error"] = str(error)
statistics = torch.cuda.memory_stats()
seen["retries"], seen["ooms"] = statistics["num_alloc_retries"], statistics["num_ooms"]
seen["reserved after"] = torch.cuda.memory_reserved()
snapshot = torch.cuda.memory._snapshot()
seen["actions"] = sorted({event["action"] for event in snapshot["device_traces"][0]})
seen["segments"] = sorted(segment["total_size"] for segment in snapshot["segments"])
first = next(event for event in snapshot["device_traces"][0] if event["action"] == "alloc")
frames = first["frames"]
seen["has frames"] = any(frame["filename"].endswith("memory.py") for frame in frames)
pages = trace_plot(snapshot), segment_plot(snapshot)
seen["drawn"] = all("<!DOCTYPE html>" in page for page in pages)
print(json.dumps(seen))
