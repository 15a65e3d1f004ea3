# SPDX-License-Identifier: Apache-2.0
# /// script
# dependencies = [
#   "ctranslate2==4.8.5",
# ]
# [tool.allocbench]
# torch = "2.9.1"
# ///
"""An array that is moved to the GPU."""

import ctranslate2
import numpy as np
import torch

print("loaded")
torch.cuda.init()
view = ctranslate2.StorageView.from_array(np.zeros((512, 512), np.float32))
view.to_device(ctranslate2.Device.cuda)
print("called")
print("ran")
