"""Strangers, and members that lie, at a running federation: refused with a sentence, and nobody else is disturbed."""

from __future__ import annotations

import pytest

import airprune as ap
from support.federation import federation
from support.web_runs import tiny

def test_whole(tmp_path):
    scenario = tiny(rounds__global_rounds=2)
    simulated = list(ap.run(scenario, out=tmp_path / "sim"))
    with federation(tmp_path, first_port=9300) as lab:
        lab.start(*lab.members.edges, *lab.devices)
        with lab.running(scenario):
            assert list(lab.records) == simulated
        print(lab.end_of("d0"))
    assert (tmp_path/"run/final.safetensors").read_bytes() == (tmp_path/"sim/final.safetensors").read_bytes()
