"""Who is missing is named while a run waits, with the reason."""

from airprune.deployment.hub_edges import Child
from airprune.deployment.identity import Members
from airprune.deployment.node_status import missing_sentence
from airprune.deployment.protocol import airprune_pb2 as pb


class HalfThere:
    """A hub with e0, where d0 is ready, d1 prepares, d2 was refused and d3 is unknown; e1 is not connected."""

    def __init__(self):
        self.members = Members(
            federation="lab",
            addresses={"cloud": "127.0.0.1:1", "e0": "127.0.0.1:2", "e1": "127.0.0.1:3"},
            devices={"e0": ["d0", "d1", "d2", "d3"], "e1": ["d4"]},
        )
        self.troubles = {"d2": "The certificate 1f of d2 was revoked."}
        self.edges = {
            "e0": Child(name="e0", link=None, about=pb.Presence.Peer(), idle=frozenset({"d1"}), troubles=self.troubles)
        }

    def present(self):
        return {0: (0, pb.Presence.Device(num_samples=3))}

    def online_devices(self):
        return {"d0": "e0", "d1": "e0"}

    def trouble_of(self, name):
        return self.troubles.get(name, "")


def test_every_missing_device_is_named_with_what_is_known_of_it():
    assert missing_sentence(HalfThere()) == (
        "1 of 5 devices are ready; missing: d1 (at e0, preparing), d2 (The certificate 1f of d2 was revoked), "
        "d3 (not connected to e0), d4 (its edge e1 is not connected)."
    )
