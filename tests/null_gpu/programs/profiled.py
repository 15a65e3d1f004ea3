"""torch.profiler: operators and their memory; CUPTI is not there."""

import json
import tempfile
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

x = torch.randn(64, 64, device="cuda", requires_grad=True)
(x @ x).sum().backward()  # so that cuBLAS has its workspaces
activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
with profile(activities=activities, profile_memory=True, record_shapes=True) as profiler:
    (x @ x).sum().backward()
(mm,) = (event for event in profiler.key_averages() if event.key == "aten::mm")
seen = {"calls": mm.count, "bytes": mm.self_device_memory_usage}
with tempfile.TemporaryDirectory() as folder:
    profiler.export_chrome_trace(f"{folder}/trace.json")
    events = json.loads(Path(folder, "trace.json").read_text())["traceEvents"]
seen["trace"] = any(event["name"] == "[memory]" for event in events)
print(json.dumps(seen))
