"""The work in pfl: FederatedAveraging in its simulated backend, two processes as its guide to fast simulations advises.

The data of a device is its `Dataset` of tensors in memory, the fastest by that guide; it takes batches in order and
does not shuffle. `torchrun` would listen on all addresses, so this file starts the second process itself and lets
torch meet on a socket of loopback.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys

import torch
import torch.distributed
from torch.nn import functional as F
from work import CNN, Count, data_of, finish, initial_model, report, settings

NUM_PROCESSES = 2


class Model(CNN):
    """With the two methods that pfl asks for."""

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        self.train(not eval)
        return F.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = True) -> dict:
        from pfl.metrics import Weighted

        return {"loss": Weighted(self.loss(x, y, eval=True).item() * len(y), len(y))}


def ids_of(num_devices: int) -> list[int]:
    """What this process draws in a round, so that the sampler starts again with each.

    At every turn a process draws one device for itself and one for each other process. With an odd number of devices
    one process has a turn more; drawing from a plain list of all devices, the two would part, and from the second round
    on one device be trained twice and another not at all.
    """
    turns = len(range(int(os.environ["RANK"]), num_devices, NUM_PROCESSES))
    return [draw % num_devices for draw in range(turns * NUM_PROCESSES)]


def train() -> None:
    # pfl joins the other process when it is imported.
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.aggregate.weighting import WeightByUser
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class AfterRound(TrainingProcessCallback):
        def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
            report(central_iteration + 1, count.take())
            return False, Metrics()

    work = settings()
    module = Model()
    module.load_state_dict(initial_model().state_dict())
    count = Count(module)
    data = {n: Dataset(data_of(n), user_id=str(n)) for n in range(work["num_devices"])}
    devices = FederatedDataset(data.__getitem__, get_user_sampler("minimize_reuse", ids_of(work["num_devices"])))
    model = PyTorchModel(
        model=module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    FederatedAveraging().run(
        backend=SimulatedBackend(training_data=devices, val_data=devices, postprocessors=[WeightByUser()]),
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=work["rounds"],
            evaluation_frequency=work["rounds"] + 1,  # the first round is evaluated even so, but it does not count
            train_cohort_size=work["num_devices"],
            val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=work["learning_rate"], local_batch_size=work["batch_size"]
        ),
        model_eval_params=NNEvalHyperParams(local_batch_size=None),
        callbacks=[AfterRound()],
    )
    if os.environ["RANK"] == "0":
        finish(module.state_dict())


def environment(rank: int, port: int) -> dict[str, str]:
    """What `torchrun` sets, and that gloo is to use loopback."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(NUM_PROCESSES),
        "LOCAL_WORLD_SIZE": str(NUM_PROCESSES),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "benchmark",
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # the meeting point is there already
        "GLOO_SOCKET_IFNAME": "lo",
    }


def main() -> None:
    torch.set_num_threads(1)
    if "RANK" in os.environ:
        train()
        return
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    store = torch.distributed.TCPStore(
        "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach()
    )
    second = subprocess.Popen([sys.executable, __file__], env=os.environ | environment(1, port))
    os.environ |= environment(0, port)
    try:
        train()
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            second.wait(timeout=60)
        second.kill()
        del store


if __name__ == "__main__":
    main()
