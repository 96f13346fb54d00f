"""A scenario on real machines: the simulator's steps with a wall clock, real links and strangers.

identity       who is who: an authority, a kit of certificate and key for each node, roles, a deny list
protocol       what travels: airprune.proto, and the Python that is generated from it
transport      one stream between a child and its parent: heartbeats, payloads in chunks, limits before memory
uploads        a device's update as bytes, and how many bytes that will be
round_machine  an edge round as a pure state machine: events in, actions out
ledger         what a device keeps on disk: its memory, and the uploads that it may have to send again
pacing         sending at a planned rate; what a link does to an upload
estimates      rates and compute times as measured, smoothed
shaping        the gateway's commands that hold devices to their shares
cloud, edge, device  the three processes
small          a device without torch, where that gives the same bits
remote         the cloud's rounds with edges that are somewhere else
checking       what children say, compared with what they were asked
measured       what really happened, beside the records
kept_rounds    rounds that an edge keeps on disk
verifying      repeating what edges made of their uploads
demo           all of it on loopback
"""

import os

# gRPC's own log is for its developers, and a stranger could fill the console with it; who wants it sets this himself.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
