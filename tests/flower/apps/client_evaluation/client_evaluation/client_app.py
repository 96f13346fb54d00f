"""The client: trains a linear model, and evaluates what it receives on samples of its own."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def samples(seed: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > x[:, 1]).long()


def received(message: Message) -> torch.nn.Linear:
    model = torch.nn.Linear(6, 2)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model


@app.train()
def train(message: Message, context: Context) -> Message:
    model, (x, y) = received(message), samples(int(context.node_config["partition-id"]), 60)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(5):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    metrics = MetricRecord({"train_loss": loss.item(), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    number = int(context.node_config["partition-id"])
    model, (x, y) = received(message), samples(100 + number, 20 + 10 * number)
    with torch.no_grad():
        outputs = model(x)
    accuracy = (outputs.argmax(dim=1) == y).float().mean().item()
    loss = torch.nn.functional.cross_entropy(outputs, y).item()
    metrics = MetricRecord({"accuracy": accuracy, "loss": loss, "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
