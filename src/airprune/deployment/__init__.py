"""Runs a scenario on real machines: the simulator's steps with a wall clock and real links.

identity         an authority, a credentials bundle ("kit") of certificate and key for each node, roles, a deny list
protocol         the messages: airprune.proto, and the Python that is generated from it
transport        one stream between a child and its parent: heartbeats, payloads in chunks, limits before memory
handshake        the first messages on a link: a child says hello, its parent admits it
run_definition   what every node derives from the scenario: method, model's shape, codec
uploads          a device's update as bytes, read without trust
packing          arrays that travel between cloud and edges
digests          digests of payloads, models and orders
pacing           the time of an upload on a real link; sending at a planned rate
shaping          the gateway's commands that hold devices to their shares

device           the device process; training runs its rounds, own_data reads its samples, ledger keeps its state
edge             the edge process: edge_devices (its links), edge_rounds, edge_sums (Eq. (12)), edge_state (its disk)
round_machine    an edge round as a pure state machine: events in, actions out
kept_rounds      rounds that an edge keeps on disk for verification

cloud            the cloud process of one run; hub and hub_edges hold its links (in loop_thread)
job_run          one run on the edges and devices of a hub; checks refuse reports that cannot be
remote           the rounds of the cloud with edges on other machines
fleet            the cloud as a service: jobs, growth, enrolment, logs, units
delivery         trained models on their way to devices, and predictions there
estimates        rates and compute times as measured, smoothed; cloud_estimates keeps them with the state of the run
measured_rows    what was planned and measured of each device, for the records
status, metrics  which nodes are online, for people and for Prometheus; node_status says why others are not

calibration      predicted against measured times
replay           a deployment repeated in simulation
verification     the sums of edges repeated from their kept uploads
demo             all of it on loopback
"""

import os

# gRPC's own log is for its developers, and any peer could fill the console with it; it can be set from outside.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
