# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "onnxruntime-gpu==1.31.1",
#   "flatbuffers==25.12.19",
#   "ml-dtypes==0.6.0",
#   "onnx==1.23.2",
#   "protobuf==7.36.2",
# ]
# [tool.allocbench]
# torch = "2.13.0"
# ///
"""A product of matrices; PyTorch is imported first, and brings the libraries."""

import numpy as np
import onnx.helper
import onnxruntime
import torch

print("loaded")
torch.cuda.init()
shapes = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [512, 512]) for n in "abc"]
product = onnx.helper.make_node("MatMul", ["a", "b"], ["c"])
graph = onnx.helper.make_graph([product], "product", shapes[:2], shapes[2:])
versions = [onnx.helper.make_opsetid("", 17)]
model = onnx.helper.make_model(graph, opset_imports=versions, ir_version=8)
session = onnxruntime.InferenceSession(
    model.SerializeToString(), providers=["CUDAExecutionProvider"]
)
if "CUDAExecutionProvider" not in session.get_providers():
    raise SystemExit("the session runs on the host")
print("called")
for _ in range(3):
    session.run(None, dict.fromkeys("ab", np.zeros((512, 512), np.float32)))
torch.zeros(1, device="cuda")
print("ran")
