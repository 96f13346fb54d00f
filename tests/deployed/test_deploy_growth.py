"""A fleet that grows: nodes added, moved and removed while it runs, enrolment by code, renewal; real processes, TLS."""

import json
import shutil
import stat

import pytest
from cryptography import x509

from airprune.deployment.identity import add_devices, add_edge, load_members, load_node, make_federation, move, remove
from airprune.deployment.identity.enrolment import enrol, invite, key_in, signing_request
from airprune.deployment.identity.growth import members_of
from airprune.deployment.identity.renewal import Renewal, Signer, with_renewed
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.errors import UnknownName, UsageError, WorkFailed
from support.federation import Processes
from support.lab import free_ports


@pytest.fixture
def lab(tmp_path):
    make_federation(tmp_path / "lab", federation="lab", num_edges=2, devices_per_edge=1)
    return tmp_path / "lab"


def test_nodes_are_added_moved_and_removed_and_a_name_is_never_used_twice(lab):
    assert [kit.name for kit in add_devices(lab, "e1", count=2)] == ["d2", "d3"]
    kit = add_edge(lab, host="10.0.0.9")
    assert load_node(kit).listen == "10.0.0.9:8703"
    assert [parent.name for parent in load_node(lab / "d3").parents] == ["e1", "e0"]  # as it was then
    move(lab, "d2", "e2")
    remove(lab, "d3")
    assert load_members(lab / "cloud").devices == {"e0": ["d0"], "e1": ["d1"], "e2": ["d2"]} == members_of(lab).devices
    assert [kit.name for kit in add_devices(lab, "e0")] == ["d4"]
    assert "d3" in (lab / "cloud/denied.toml").read_text()
    with pytest.raises(UsageError, match="e1 is the home of d1; move them first"):
        remove(lab, "e1")
    with pytest.raises(UnknownName, match="edge 'e7' is unknown"):
        move(lab, "d0", "e7")
    before = sorted(path.name for path in lab.iterdir())
    with pytest.raises(UsageError, match="must be one that no node of the federation has had"):
        add_devices(lab, "e0", name="d3")
    assert sorted(path.name for path in lab.iterdir()) == before


def test_a_move_to_the_edge_where_a_device_is_changes_nothing(lab):
    add_devices(lab, "e0", count=2)
    move(lab, "d0", "e0")
    assert members_of(lab).devices["e0"] == ["d0", "d2", "d3"]  # the order numbers the devices of a job


def test_a_code_is_for_one_key_and_a_lost_answer_is_given_again(lab, tmp_path):
    (code,) = invite(lab, "e1")
    secret = code.partition(".")[0]
    request = signing_request(key_in(tmp_path / "kit"))
    first = enrol(lab, secret, request)
    assert enrol(lab, secret, request) == first
    assert load_members(lab / "cloud").devices["e1"] == ["d1", "d2"]
    with pytest.raises(UsageError, match="was used by d2 already"):
        enrol(lab, secret, signing_request(key_in(tmp_path / "other")))
    with pytest.raises(UsageError, match="unknown"):
        enrol(lab, "a" * 16, request)
    (late,) = invite(lab, "e1", hours=1e-9)
    with pytest.raises(UsageError, match="has expired"):
        enrol(lab, late.partition(".")[0], request)
    assert secret not in (lab / "authority/invitations.json").read_text()


def test_a_renewed_certificate_holds_after_a_restart_until_the_kit_is_newer(lab, tmp_path):
    node, signer = load_node(lab / "d0"), Signer(lab)
    renewal = Renewal(node, tmp_path, before_days=400.0)
    request = renewal.request()
    assert renewal.request() is None  # not before an hour has passed
    assert renewal.take(signer.answer(request, "d0", frozenset()))
    again = with_renewed(load_node(lab / "d0"), tmp_path)
    assert again.certificate == renewal.node.certificate != node.certificate and again.key != node.key
    assert stat.S_IMODE((tmp_path / "identity.pem").stat().st_mode) == 0o600
    (tmp_path / "identity.pem").write_bytes(b"torn")
    assert with_renewed(node, tmp_path) is node


def test_no_certificate_is_given_in_anothers_name_or_for_a_revoked_one(lab, tmp_path):
    signer = Signer(lab)
    request = Renewal(load_node(lab / "d0"), tmp_path, before_days=400.0).request()
    assert "in the name of d0 came from d1" in signer.answer(request, "d1", frozenset()).trouble
    serial = f"{x509.load_pem_x509_certificate(load_node(lab / 'd0').certificate).serial_number:x}"
    assert "was revoked" in signer.answer(request, "d0", frozenset({serial})).trouble
    forged = pb.CertificateRequest.FromString(request.SerializeToString())
    forged.request = signing_request(key_in(tmp_path / "edge"))
    assert "signed with the key of a certificate" in signer.answer(forged, "d0", frozenset()).trouble
    with pytest.raises(WorkFailed, match="was not renewed"):
        wrong = Renewal(load_node(lab / "d0"), tmp_path, before_days=400.0)
        wrong.request()
        wrong.take(pb.Certificate(trouble="no authority"))


def test_new_nodes_that_start_before_the_cloud_knows_them_wait_until_it_does(tmp_path):
    """As the commands say where the cloud's kit is elsewhere: the operator copies members.toml there, after all."""
    with Processes(tmp_path, num_edges=1, devices_per_edge=1) as fleet:
        fleet.start_all()
        fleet.serve()
        desk = tmp_path / "desk"
        shutil.copytree(fleet.kits, desk, ignore=shutil.ignore_patterns("cloud", "state"))
        fleet.ask("add", "edge", desk, "--port", free_ports(9470, 1))
        fleet.ask("add", "device", desk, "--edge", "e0", "--count", "2")
        for name in ("e1", "d1", "d2"):
            shutil.copytree(desk / name, fleet.kits / name)
        fleet.ask("remove", desk, "d2")
        shutil.copy(desk / "authority/denied.toml", fleet.kits / "cloud")
        fleet.wait_for(lambda: (found := fleet.status()) and found.online("device") == 1, "d0 waits")
        for name in ("e1", "d1"):
            fleet.start(name)
            fleet.wait_for(lambda name=name: "It will, once members.toml" in fleet.log(name), f"{name} waits")
        fleet.start("d2")
        assert fleet.wait("d2") == 1 and "It will" not in fleet.log("d2")  # removed: for good
        shutil.copy(desk / "authority/members.toml", fleet.kits / "cloud")
        fleet.wait_for(lambda: fleet.status().online("device") == fleet.status().online("edge") == 2, "they join")


def test_a_running_fleet_takes_in_an_edge_and_an_enrolled_device_and_lets_another_go(tmp_path):
    with Processes(tmp_path, num_edges=1, devices_per_edge=2) as fleet:
        cloud, port = fleet.kits / "cloud", free_ports(9480, 1)
        fleet.start_all("--renew-before", "400")
        fleet.serve("--authority", str(fleet.kits), "--enrol-port", str(port))

        def nodes() -> dict[str, str | None]:
            found = fleet.status()
            return (
                {}
                if found is None
                else {node.name: node.edge for node in found.nodes if node.online and node.role != "cloud"}
            )

        fleet.wait_for(lambda: {"e0", "d0", "d1"} <= nodes().keys(), "the first nodes are online")
        fleet.wait_for(lambda: (fleet.state("d0") / "identity.pem").exists(), "d0 has renewed its certificate")
        new_edge_port = free_ports(9490, 1)
        fleet.ask("add", "edge", fleet.kits, "--port", new_edge_port)
        fleet.start("e1")
        (code,) = fleet.ask("invite", fleet.kits, "--edge", "e1").split()
        fleet.ask("enrol", code, "--at", f"127.0.0.1:{port}", "--kit", fleet.kits / "d2")
        assert stat.S_IMODE((fleet.kits / "d2/node-key.pem").stat().st_mode) == 0o600
        assert not list((fleet.kits / "authority").rglob("*d2-key*"))
        fleet.start("d2")
        fleet.ask("move", fleet.kits, "d1", "e1")
        fleet.ask("remove", fleet.kits, "d0")
        wanted = {"e0": None, "e1": None, "d1": "e1", "d2": "e1"}
        fleet.wait_for(lambda: nodes() == wanted, "the fleet is as it was made")
        assert fleet.wait("d0") == 1  # refused for good
        number = fleet.ask(
            "submit", cloud, "deployed", "model.name=mlp", "data.train_samples=120", "data.test_samples=40",
            "rounds.global_rounds=1", "rounds.edge_rounds=1", "engine.name=serial", "--plan-with", "network",
            "--grace", "120",
        )  # fmt: skip
        fleet.wait_for_job(int(number))
        about = json.loads((fleet.job_folder(int(number)) / "deployment.json").read_text())
        assert about["members"]["devices"] == {"e0": [], "e1": ["d2", "d1"]}
