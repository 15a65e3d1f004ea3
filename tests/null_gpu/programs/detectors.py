"""Detectors of torchvision: how many boxes they select, on the CPU and on the null GPU.

On the CPU, the selected boxes depend on random weights.
"""

import json
import sys

import torch
from torchvision.models import detection

READS = sys.modules["allocbench_inside"]._process._reads
OPTIONS = {"weights": None, "weights_backbone": None, "num_classes": 7}
SIZE = {"min_size": 160, "max_size": 160}


def counted(module, counts):
    """Note the length of what a module gets."""
    module.register_forward_pre_hook(lambda _module, given: counts.append(len(given[0])))


def target(device):
    boxes = torch.tensor([[10.0, 10.0, 90.0, 80.0], [60.0, 70.0, 140.0, 150.0]], device=device)
    boxes = boxes.relu()  # not known on the null GPU
    labels, masks = torch.tensor([1, 3], device=device), torch.zeros(2, 160, 160).bool()
    return {"boxes": boxes, "labels": labels, "masks": masks.byte().to(device)}


def sampled(device):
    """Boxes that the heads of a Mask R-CNN get, in training and afterwards, with autocast."""
    torch.manual_seed(0)
    model = detection.maskrcnn_resnet50_fpn(**OPTIONS, **SIZE).to(device)
    boxes, objects = [], []
    counted(model.roi_heads.box_head, boxes)
    counted(model.roi_heads.mask_head, objects)
    images = [torch.rand(3, 160, 160, device=device) for _ in range(2)]
    with torch.autocast(device):
        losses = model(images, [target(device), target(device)])
    sum(losses.values()).backward()
    model.eval()
    with torch.no_grad():
        found = model(images)
    return boxes, objects, [len(one["boxes"]) for one in found]


def classified(device):
    """Anchors that the loss of a RetinaNet gets."""
    torch.manual_seed(0)
    model = detection.retinanet_resnet50_fpn(**OPTIONS, **SIZE).to(device)
    counts, loss = [], detection.retinanet.sigmoid_focal_loss

    def noted(logits, *arguments, **options):
        counts.append(len(logits))
        return loss(logits, *arguments, **options)

    detection.retinanet.sigmoid_focal_loss = noted
    losses = model([torch.rand(3, 160, 160, device=device)], [target(device)])
    sum(losses.values()).backward()
    detection.retinanet.sigmoid_focal_loss = loss
    return counts


def trains(make, **options):
    """Whether a detector trains; the boxes that it then finds in an image."""
    model = make(**OPTIONS, **options).cuda()
    images = [torch.rand(3, 160, 160).cuda() for _ in range(2)]
    sum(model(images, [target("cuda"), target("cuda")]).values()).backward()
    with torch.no_grad():
        return len(model.eval()(images)[0]["boxes"])


seen = {
    "sampled": {device: sampled(device) for device in ("cpu", "cuda")},
    "classified": {device: classified(device) for device in ("cpu", "cuda")},
    "detected": [
        trains(detection.fasterrcnn_mobilenet_v3_large_320_fpn),
        trains(detection.ssdlite320_mobilenet_v3_large),
        trains(detection.fcos_resnet50_fpn, **SIZE),
    ],
    "shapes": dict(READS.shapes),
}
print(json.dumps(seen))
