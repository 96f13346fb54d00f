"""Two device rounds after each other of some methods, as digests. Run as a program: in a process that refuses torch."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

SHAPE, NUM_CLASSES = (1, 12, 12), 4
# Absent on a small device: see requirements-device.txt.
ABSENT = ("torch", "matplotlib", "cloudpickle", "prometheus_client")
CASES: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "the wider CNN": {"model.name": "cifar-cnn"},
    "frozen and quantised": {"method": "frozen-pruning", "compression.name": "quantised"},
    "adaptive codes with memory": {"method": "adaptive-bits"},
    "top-k with memory": {"method": "mem-sgd"},
    "units drawn, trained as a smaller model": {"method": "feddrop"},
    "channels too, trained with zeros": {"method": "feddrop", "model.prunable": ("*",)},
    "a width for each minibatch": {"method": "fjord"},
    "momentum, decay and a proximal term": {
        "method": "fedprox",
        "train.momentum": 0.9,
        "train.weight_decay": 0.01,
    },
    "corrected gradients": {"method": "scaffold"},
    "a layer of its own": {"method": "japp"},
    "averaged scores": {"method": "taylor"},
    "planned work": {"method": "adaptive-work", "train.momentum": 0.9},
}


def samples() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(64) % NUM_CLASSES
    return (rng.normal(size=(NUM_CLASSES, *SHAPE))[y] + rng.normal(size=(64, *SHAPE))).astype(np.float32), y


def scenario_of(changes: dict[str, Any]) -> Any:
    from airprune.scenario import Scenario

    train = {"train.learning_rate": 0.05, "train.batch_size": 16, "train.local_epochs": 2}
    return Scenario().with_values(train).with_values(changes)


def digests(changes: dict[str, Any], device_of: Callable[[Any], Any]) -> list[str]:
    """Of all that a device answers and keeps, round by round."""
    from airprune.components.component import Owner
    from airprune.rounds.device import device_round
    from airprune.rounds.local import Streams
    from airprune.rounds.messages import Broadcast, Orders
    from airprune.rounds.method import Method

    scenario = scenario_of(changes)
    device = device_of(scenario)
    slots = Method.of(scenario).slots(device.shape)
    memory = {slot.name: slot.row(device.shape) for slot in slots if slot.owner is Owner.DEVICE}
    values = {slot.name: slot.row(device.shape) for slot in slots if slot.owner is Owner.CLOUD}
    rng, found = np.random.default_rng(1), []
    for number in range(2):
        model = (0.1 * rng.normal(size=device.shape.num_state)).astype(np.float32)
        code = 2 if changes.get("method") in ("adaptive-bits", "adaptive-work") else None
        keep = device.shape.prunable_weights * 2 // 3
        orders = Orders(device=3, keep=keep, learning_rate=0.05, round_index=number, code=code, memory=memory)
        if changes.get("method") == "adaptive-work":  # twice over its samples, with kept features; then once
            orders = orders._replace(local_steps=6 - 3 * number, first_trained=2 - number)
        streams = Streams(7, 0, number)
        received = Broadcast(model=model, values=values)
        upload = device_round(device, received, orders, samples=np.arange(5, 50), streams=streams)
        arrays = {"state": upload.state, **upload.memory, **upload.report}
        memory = {name: upload.memory[name] for name in memory}
        digest = hashlib.sha256(repr((upload.loss, upload.sent_bits, upload.code_error)).encode())
        for name in sorted(arrays):
            digest.update(name.encode() + np.ascontiguousarray(arrays[name]).tobytes())
        found.append(digest.hexdigest())
    return found


def main() -> None:
    for name in ABSENT:
        sys.modules[name] = None  # type: ignore[assignment]
    import airprune.cli.deploy
    import airprune.data
    import airprune.deployment.device  # noqa: F401
    from airprune.deployment.training import local_device
    from airprune.errors import AirpruneError

    x, y = samples()

    def device_of(scenario: Any) -> Any:
        return local_device(scenario, input_shape=SHAPE, num_classes=NUM_CLASSES, x=x, y=y)

    answers: dict[str, Any] = {name: digests(changes, device_of) for name, changes in CASES.items()}
    try:
        device_of(scenario_of({"train.optimizer": "adam"}))
    except AirpruneError as error:
        answers["refused"] = str(error)
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main()
