"""The client: moves its model step by step, within its budget."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import airprune as ap

app = ClientApp(mods=[ap.flower.within_budget])


@app.train()
def train(message: Message, context: Context) -> Message:
    weight, bias = message.content["arrays"].to_numpy_ndarrays()
    steps = 0
    for step in ap.flower.batches_within(np.full(10, 0.1, np.float32), message.content["config"]):
        weight, bias, steps = weight + step, bias + step, steps + 1
    content = RecordDict(
        {
            "arrays": ArrayRecord({"0": Array(weight), "1": Array(bias)}),
            "metrics": MetricRecord({"num-examples": 10, "steps": steps}),
        }
    )
    return Message(content=content, reply_to=message)
