"""The client of the quickstart; its one line for airprune registers what it trains."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import airprune as ap
from like_app.task import model, samples
from like_app.task import train as train_model

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    net = model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = samples(context.node_config["partition-id"])
    epochs = context.run_config["local-epochs"]
    ap.flower.counted(net, x, epochs)
    loss = train_model(net, x, y, epochs=epochs, lr=context.run_config["lr"])
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(x)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)
