# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 trained on more images, so its last batches have other sizes."""

from dataclasses import replace

from allocbench.workloads.models import resnet

PROGRAM = replace(
    resnet.PROGRAM, full=replace(resnet.PROGRAM.full, images=980, validation_images=800)
)
