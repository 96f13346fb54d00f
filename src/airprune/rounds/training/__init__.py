"""The work of a worker: training chunks of devices, evaluating models.

chunks      a round's devices in chunks, as tasks of an engine
worker      what trains a chunk, wherever that is
together    devices of a chunk trained in step
at_once     a chunk of devices that do only what the paper's do, in one call
observed    a chunk trained in sight: what each device did, for a trace of the round
evaluator   loss and metric on held-out samples
"""
