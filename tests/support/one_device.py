"""A device of a small MLP with samples around it."""

from dataclasses import replace

import torch

from airprune.methods.compression.base import Wire
from airprune.models.catalogue import MLP, FlatModel
from airprune.rounds.local import Device, LocalSettings
from airprune.rounds.method import Method
from support.tiny import blobs, tiny_scenario


def device(*, masking=None, choices=None, **changes) -> Device:
    torch.manual_seed(0)
    (x, y), _ = blobs()
    method = Method.of(tiny_scenario(**(choices or {}))).local
    if masking is not None:
        method = replace(method, masking=masking)
    model = FlatModel(MLP((12,), 4))
    wire = Wire(value_bits=64.0, num_weights=model.shape.num_weights, num_tensors=2)
    return Device(model, x, y, LocalSettings(**{"batch_size": 16, "local_epochs": 2, **changes}), method, wire)
