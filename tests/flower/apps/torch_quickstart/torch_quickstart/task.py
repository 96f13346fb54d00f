"""The network, its data and its training."""

import torch
from torch.utils.data import DataLoader, TensorDataset


class Net(torch.nn.Module):
    """Two layers on eight inputs."""

    def __init__(self):
        super().__init__()
        self.fc1 = torch.nn.Linear(8, 16)
        self.fc2 = torch.nn.Linear(16, 2)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


def samples(seed: int, count: int) -> TensorDataset:
    """Points on two sides of a plane."""
    x = torch.randn(count, 8, generator=torch.Generator().manual_seed(seed))
    return TensorDataset(x, (x[:, :3].sum(dim=1) > 0).long())


def load_data(partition_id: int) -> DataLoader:
    order = torch.Generator().manual_seed(partition_id)
    return DataLoader(samples(partition_id, 64), batch_size=16, shuffle=True, generator=order)


def train(net, loader, epochs: int, learning_rate: float) -> float:
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    net.train()
    running = 0.0
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(inputs), labels)
            loss.backward()
            optimizer.step()
            running += loss.item()
    return running / (epochs * len(loader))


def test(net) -> tuple[float, float]:
    x, y = samples(999, 256).tensors
    net.eval()
    with torch.no_grad():
        outputs = net(x)
    return torch.nn.functional.cross_entropy(outputs, y).item(), (outputs.argmax(dim=1) == y).float().mean().item()
