"""The work in FedLab: FedAvg in its standalone pipeline, which trains one client after the other in one process.

Its own trainer and server handler are used as they are. The data set hands out the data loader of a client, made once.
"""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset
from work import Count, data_of, finish, initial_model, report, settings

try:
    import torchvision  # noqa: F401
except RuntimeError:
    # FedLab imports torchvision, whose usual build needs a torch with CUDA: without one its operators are missing, and
    # two of them are asked for on import. Nothing here uses them, so their declaration is enough.
    for name in ("nms", "qnms"):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline


class Devices(FedDataset):
    def __init__(self, num_devices: int, batch_size: int) -> None:
        super().__init__()
        self.num = num_devices
        self._loaders = [
            DataLoader(TensorDataset(*data_of(device)), batch_size=batch_size, shuffle=True)
            for device in range(num_devices)
        ]

    def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> DataLoader:
        return self._loaders[id]


class Pipeline(StandalonePipeline):
    def __init__(self, handler: FedAvgServerHandler, trainer: FedAvgSerialClientTrainer, count: Count) -> None:
        super().__init__(handler, trainer)
        self._count = count

    def evaluate(self) -> None:
        """Where a user evaluates, after every round."""
        report(self.handler.round, self._count.take())


def main() -> None:
    torch.set_num_threads(1)
    work = settings()
    model = initial_model()
    count = Count(model)
    trainer = FedAvgSerialClientTrainer(model, work["num_devices"])
    trainer.setup_dataset(Devices(work["num_devices"], work["batch_size"]))
    trainer.setup_optim(epochs=1, batch_size=work["batch_size"], lr=work["learning_rate"])
    handler = FedAvgServerHandler(model, global_round=work["rounds"], sample_ratio=1.0)
    Pipeline(handler, trainer, count).main()
    finish(handler.model.state_dict())


if __name__ == "__main__":
    main()
