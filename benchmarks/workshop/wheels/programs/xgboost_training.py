# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "xgboost==3.2.0",
#   "scipy==1.17.1",
# ]
# [tool.allocbench]
# torch = "2.9.1"
# ///
"""Two trees."""

import numpy as np
import torch
import xgboost

print("loaded")
torch.cuda.init()
data = xgboost.DMatrix(np.zeros((1000, 16)), label=np.zeros(1000))
trees = xgboost.train({"device": "cuda", "tree_method": "hist"}, data, 2)
if '"device":"cpu"' in trees.save_config():
    raise SystemExit("the training runs on the host")
print("called")
print("ran")
