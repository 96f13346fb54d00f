"""Identity of deployed nodes: kits, and who gets through a real TLS handshake over loopback."""

import contextlib
import dataclasses
import datetime
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from airprune.authority import Certified
from airprune.deployment.identity import (
    Node,
    Peer,
    Role,
    Stranger,
    admit,
    channel_credentials,
    load_denied,
    load_members,
    load_node,
    make_federation,
    peer_of,
    renew,
    revoke,
    serial_of,
    server_credentials,
)
from airprune.errors import InvalidValue, UsageError

ROUTE = "/test/who"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """`lab`, and `twin` of the same name under another authority; only to be read."""
    folder = tmp_path_factory.mktemp("federations")
    for name in ("lab", "twin"):
        make_federation(folder / name, federation="lab", num_edges=2, devices_per_edge=2, standby_edges=1)
    return folder


@pytest.fixture
def lab(made, tmp_path) -> Path:
    return shutil.copytree(made / "lab", tmp_path / "lab")


def signer(federation: Path) -> Certified:
    key = serialization.load_pem_private_key((federation / "authority" / "ca-key.pem").read_bytes(), password=None)
    return Certified(x509.load_pem_x509_certificate((federation / "authority" / "ca.pem").read_bytes()), key)


def with_certificate(node: Node, federation: Path, *, names: list[x509.GeneralName], usage=None, days=1) -> Node:
    """The node with another certificate of the authority's."""
    usage = x509.ExtendedKeyUsage([usage or ExtendedKeyUsageOID.CLIENT_AUTH])
    extensions = (x509.SubjectAlternativeName(names), usage)
    own = signer(federation).certify("other", days=days, extensions=extensions)
    return dataclasses.replace(node, certificate=own.certificate_pem, key=own.key_pem)


def uri(text: str) -> x509.GeneralName:
    return x509.UniformResourceIdentifier(text)


@contextlib.contextmanager
def serving(node: Node, denied: Callable[[], frozenset[str]] = frozenset) -> Iterator[str]:
    """A server that tells devices d0 and d1 who they are; its address."""

    def who(_: bytes, context: grpc.ServicerContext) -> bytes:
        pem = context.auth_context()["x509_pem_cert"][0]
        try:
            peer = admit(pem, federation="lab", role=Role.DEVICE, names=("d0", "d1"), denied=denied())
        except Stranger as error:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
        return peer.uri.encode()

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            return grpc.unary_unary_rpc_method_handler(who)

    server = grpc.server(ThreadPoolExecutor(2), handlers=(Handler(),))
    port = server.add_secure_port("127.0.0.1:0", server_credentials(node))
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(0).wait()


def ask(address: str, dialer: Node | grpc.ChannelCredentials, insisting_on: str = "e0.lab.airprune") -> str:
    """Returns our name at the server; "no connection" if the handshake failed, or its reason for refusing."""
    credentials = channel_credentials(dialer) if isinstance(dialer, Node) else dialer
    with grpc.secure_channel(address, credentials, [("grpc.ssl_target_name_override", insisting_on)]) as channel:
        try:
            return channel.unary_unary(ROUTE)(b"", timeout=5).decode()
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return "no connection"
            assert error.code() is grpc.StatusCode.PERMISSION_DENIED
            return error.details()


# What a federation is made of


def test_every_kit_says_who_it_is_where_it_listens_and_whom_to_dial(made):
    cloud, edge, standby, device = (load_node(made / "lab" / name) for name in ("cloud", "e1", "e2", "d2"))
    assert [node.peer for node in (cloud, edge, device)] == [
        Peer("lab", Role.CLOUD, "cloud"), Peer("lab", Role.EDGE, "e1"), Peer("lab", Role.DEVICE, "d2"),
    ]  # fmt: skip
    assert [node.index for node in (cloud, edge, standby, device)] == [0, 1, 2, 2]
    assert [node.listen for node in (cloud, edge, device)] == ["127.0.0.1:8700", "127.0.0.1:8702", None]
    assert cloud.parents == ()
    assert [(parent.name, parent.role, parent.address) for parent in edge.parents] == [
        ("cloud", Role.CLOUD, "127.0.0.1:8700")
    ]
    # Home first, then the edge that stands by, then the other one.
    assert [parent.server_name for parent in device.parents] == [f"{name}.lab.airprune" for name in ("e1", "e2", "e0")]
    assert device.peer.uri == "airprune://lab/device/d2"
    assert b"PRIVATE" in device.key and "PRIVATE" not in repr(device)


def test_the_cloud_knows_all_names_in_the_order_of_their_numbers(made):
    assert load_members(made / "lab" / "cloud").names == {
        Role.CLOUD: ("cloud",),
        Role.EDGE: ("e0", "e1", "e2"),
        Role.DEVICE: ("d0", "d1", "d2", "d3"),
    }
    members = load_members(made / "lab" / "cloud")
    assert members.devices == {"e0": ["d0", "d1"], "e1": ["d2", "d3"], "e2": []}
    assert members.standby == ("e2",) and members.addresses["e2"] == "127.0.0.1:8703"


def test_keys_are_for_their_owner_only(made):
    keys = list((made / "lab").rglob("*-key.pem"))
    assert len(keys) == 1 + 1 + 3 + 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in keys} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (made / "lab").glob("**/")} == {0o700}


def test_only_those_who_listen_may_be_servers(made):
    for role, allowed in load_members(made / "lab" / "cloud").names.items():
        for name in allowed:
            certificate = x509.load_pem_x509_certificate((made / "lab" / name / "node.pem").read_bytes())
            usage = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
            assert ExtendedKeyUsageOID.CLIENT_AUTH in usage
            assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == (role is not Role.DEVICE)
            assert certificate.public_key().curve.name == "secp256r1"


def test_hosts_are_dialled_where_they_are_and_edges_may_differ_in_size(tmp_path):
    hosts = {"cloud": "lab1.example.org", "e1": "2001:db8::1"}
    make_federation(tmp_path / "lab", num_edges=2, devices_per_edge=[1, 2], hosts=hosts, first_port=9000)
    edge, device = load_node(tmp_path / "lab" / "e1"), load_node(tmp_path / "lab" / "d2")
    assert edge.parents[0].address == "lab1.example.org:9000"
    assert load_node(tmp_path / "lab" / "cloud").listen == "0.0.0.0:9000"  # a name may be 127.0.1.1 on its own machine
    assert device.parents[0].address == edge.listen == "[2001:db8::1]:9002"
    assert re.fullmatch("[0-9a-f]{8}", device.peer.federation)


def test_an_existing_folder_is_never_replaced(lab, tmp_path):
    before = {path: path.read_bytes() for path in lab.rglob("*") if path.is_file()}
    with pytest.raises(UsageError, match="already holds a federation"):
        make_federation(lab, num_edges=1, devices_per_edge=1)
    assert {path: path.read_bytes() for path in lab.rglob("*") if path.is_file()} == before
    with pytest.raises(UsageError, match="not an empty folder"):
        make_federation(tmp_path, num_edges=1, devices_per_edge=1)


def test_a_federation_whose_making_is_killed_is_not_there(tmp_path):
    call = "make_federation(Path(sys.argv[1]), num_edges=1, devices_per_edge=9000)"
    program = f"import sys; from pathlib import Path; from airprune.deployment.identity import *; {call}"
    process = subprocess.Popen([sys.executable, "-c", program, tmp_path / "lab"])
    try:
        until = time.monotonic() + 20
        while not list(tmp_path.glob(".lab-*.partial/d0")) and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "lab").exists()
    assert len(make_federation(tmp_path / "lab", num_edges=1, devices_per_edge=1)) == 3


def test_a_federation_that_cannot_be_written_leaves_nothing(tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))  # bytes of a file, fewer than a certificate has
    try:
        with pytest.raises(OSError, match="File too large"):
            make_federation(tmp_path / "lab", num_edges=1, devices_per_edge=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == []


# Who gets through


def test_a_device_of_the_federation_is_known_by_its_certificate(made):
    with serving(load_node(made / "lab" / "e0")) as address:
        assert ask(address, load_node(made / "lab" / "d0")) == "airprune://lab/device/d0"


def test_strangers_are_refused_and_disturb_nobody(made):
    lab, friend = made / "lab", load_node(made / "lab" / "d0")
    no_certificate = grpc.ssl_channel_credentials(friend.authority)
    foreign = with_certificate(friend, lab, names=[uri("airprune://field/device/d0")])
    nameless = with_certificate(friend, lab, names=[x509.DNSName("d0.lab.airprune")])
    expired, fresh = (with_certificate(friend, lab, names=[uri(friend.peer.uri)], days=days) for days in (0, 1))
    # Its own authority's certificate, but it trusts ours: it is the server that objects.
    twin = dataclasses.replace(load_node(made / "twin" / "d0"), authority=friend.authority)
    with serving(load_node(lab / "e0")) as address:
        for stranger, reason in [
            (twin, "no connection"),
            (no_certificate, "no connection"),
            (expired, "no connection"),
            (fresh, friend.peer.uri),
            (foreign, "airprune://field/device/d0 is of another federation; this one is lab."),
            (nameless, "must name its node by one URI like airprune://FEDERATION/device/d0, got none."),
            (load_node(lab / "e1"), "airprune://lab/edge/e1 has the role edge; only the role device joins here."),
            (load_node(lab / "d3"), "airprune://lab/device/d3 is not a member that joins here."),
        ]:
            assert ask(address, stranger).endswith(reason)
            assert ask(address, friend) == friend.peer.uri


@pytest.mark.parametrize("imposter", ["twin/e0", "lab/e1", "lab/d1"])
def test_a_dialer_insists_on_its_parent(made, imposter):
    device = load_node(made / "lab" / "d0")
    # It would let our devices in: it is the dialer that objects.
    server = dataclasses.replace(load_node(made / imposter), authority=device.authority)
    assert device.parents[0].server_name == "e0.lab.airprune"
    with serving(server) as address:
        assert ask(address, device, device.parents[0].server_name) == "no connection"


@pytest.mark.parametrize(
    ("usage", "days", "answer"),
    [
        (ExtendedKeyUsageOID.SERVER_AUTH, 1, "airprune://lab/device/d0"),
        (ExtendedKeyUsageOID.SERVER_AUTH, 0, "no connection"),
        (ExtendedKeyUsageOID.CLIENT_AUTH, 1, "no connection"),
    ],
)
def test_the_parents_name_is_not_enough_without_the_right_to_serve_or_after_its_time(made, usage, days, answer):
    device, edge = load_node(made / "lab" / "d0"), load_node(made / "lab" / "e0")
    names = [uri(edge.peer.uri), x509.DNSName(edge.peer.server_name)]
    with serving(with_certificate(edge, made / "lab", names=names, usage=usage, days=days)) as address:
        assert ask(address, device) == answer


def test_a_revoked_node_is_refused_until_its_kit_is_renewed(lab):
    old, other = load_node(lab / "d0"), load_node(lab / "d1")
    with serving(load_node(lab / "e0"), lambda: load_denied(lab / "cloud" / "denied.toml")) as address:
        assert ask(address, old) == old.peer.uri
        serial = revoke(lab, "d0")
        refusal = f"The certificate {serial} of {old.peer.uri} was revoked or renewed; use the newest kit."
        assert ask(address, load_node(lab / "d0")) == refusal
        assert ask(address, other) == other.peer.uri
        assert renew(lab, "d0", days=3) == lab / "d0"
        assert ask(address, load_node(lab / "d0")) == old.peer.uri
        assert ask(address, old) == refusal


@pytest.mark.parametrize(
    "names",
    [
        [],
        [uri("airprune://lab/device/d0"), uri("airprune://lab/device/d1")],
        [uri("airprune://lab/root/d0")],
        [uri("airprune://lab/device/d0/more")],
        [uri("airprune://lab/device/d0\n")],
        [uri("airprune://lab/device/D0")],
        [uri("https://lab/device/d0")],
    ],
)
def test_a_certificate_that_names_no_node_is_a_stranger(made, names):
    node = with_certificate(load_node(made / "lab" / "d0"), made / "lab", names=names or [x509.DNSName("d0")])
    with pytest.raises(Stranger, match="one URI like"):
        peer_of(node.certificate)


@pytest.mark.parametrize("pem", [b"", b"nonsense", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_a_stranger(pem):
    for read in (peer_of, serial_of):
        with pytest.raises(Stranger, match="must be in PEM"):
            read(pem)


# Revoking and renewing


def test_a_node_is_revoked_even_if_its_kit_and_the_clouds_are_elsewhere(lab):
    serial = serial_of((lab / "d0" / "node.pem").read_bytes())
    shutil.rmtree(lab / "d0")
    shutil.rmtree(lab / "cloud")
    assert revoke(lab, "d0") == revoke(lab, "d0") == serial
    denied = load_denied(lab / "authority" / "denied.toml")
    assert denied == {serial}
    assert not load_denied(lab / "nowhere.toml")


def test_a_renewed_kit_has_another_key_and_the_asked_life(lab):
    before, after = load_node(lab / "e0"), load_node(renew(lab, "e0", days=7))
    assert after.key != before.key and after.peer == before.peer and after.parents == before.parents
    assert stat.S_IMODE((lab / "e0" / "node-key.pem").stat().st_mode) == 0o600
    left = x509.load_pem_x509_certificate(after.certificate).not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    assert datetime.timedelta(days=6.9) < left <= datetime.timedelta(days=7)
    for place in ("authority", "cloud"):
        assert load_denied(lab / place / "denied.toml") == {serial_of(before.certificate)}


@pytest.mark.parametrize("place", ["authority", "cloud"])
def test_a_renewal_that_fails_changes_nothing(lab, place):
    (lab / place / "denied.toml").write_text("denied = 3\n")
    before = {path: path.read_bytes() for path in lab.rglob("*") if path.is_file()}
    for change in (renew, revoke):
        with pytest.raises(InvalidValue, match=r"denied\.toml: denied must be a table of serial numbers, got 3"):
            change(lab, "d0")
        assert {path: path.read_bytes() for path in lab.rglob("*") if path.is_file()} == before


def test_a_renewal_that_was_killed_between_its_files_is_repaired_by_the_next(lab):
    old = load_node(lab / "d0")
    renew(lab, "d0")
    (lab / "d0" / "node.pem").write_bytes(old.certificate)  # which is the last to be replaced
    with pytest.raises(UsageError, match="is not the key of"):
        load_node(lab / "d0")
    new = load_node(renew(lab, "d0"))
    denied = load_denied(lab / "cloud" / "denied.toml")
    assert serial_of(old.certificate) in denied and serial_of(new.certificate) not in denied


def test_revocations_at_the_same_time_are_all_kept(lab):
    devices = load_members(lab / "cloud").names[Role.DEVICE]
    with ThreadPoolExecutor(4) as pool:
        serials = set(pool.map(lambda name: revoke(lab, name), devices))
    assert load_denied(lab / "cloud" / "denied.toml") == serials and len(serials) == 4


# Broken kits


def edit(name: str, old: str, new: str) -> Callable[[Path], object]:
    def change(kit: Path) -> None:
        text = (kit / name).read_text()
        assert old in text
        (kit / name).write_text(text.replace(old, new))

    return change


def let_expire(kit: Path) -> None:
    node = load_node(kit)
    own = with_certificate(node, kit.parent, names=[uri(node.peer.uri)], days=0)
    (kit / "node.pem").write_bytes(own.certificate)
    (kit / "node-key.pem").write_bytes(own.key)


@pytest.mark.parametrize(
    ("name", "damage", "sentence"),
    [
        ("d0", shutil.rmtree, "d0/node.toml is missing; copy the whole kit"),
        ("d0", lambda kit: (kit / "ca.pem").unlink(), "d0/ca.pem is missing; copy the whole kit"),
        ("d0", lambda kit: (kit / "node-key.pem").unlink(), "d0/node-key.pem is missing"),
        ("d0", lambda kit: (kit / "node-key.pem").chmod(0o640), "must be for its owner only, got mode 640. Do: chmod"),
        ("d0", lambda kit: (kit / "node-key.pem").write_text("?"), "d0/node-key.pem is no private key"),
        ("d0", lambda kit: (kit / "node.pem").write_text("?"), "d0/node.pem is of no node: A certificate must be in"),
        ("d0", lambda kit: (kit / "ca.pem").write_text("?"), "d0/node.pem is not signed by ca.pem beside it"),
        ("d0", lambda kit: shutil.copy(kit.parent / "d1/node-key.pem", kit), "is not the key of node.pem beside it"),
        ("d0", lambda kit: shutil.copy(kit.parent / "d1/node.pem", kit), "must be of the certificate's node"),
        ("d0", let_expire, "UTC; renew it with `airprune deploy renew FOLDER d0`"),
        ("d0", lambda kit: (kit / "node.toml").write_bytes(b"\xff"), "node.toml must be UTF-8 text, got byte 0xff"),
        ("d0", edit("node.toml", "index = 0", "index ="), "node.toml, line 4, must be valid TOML"),
        ("d0", edit("node.toml", "index = 0", "index = -1"), "node.toml.index must be"),
        ("d0", edit("node.toml", "index = 0", ""), "node.toml.index must be given, got nothing"),
        ("d0", edit("node.toml", "index", "indx"), "node.toml.index must be given"),
        ("d0", edit("node.toml", '"device"', '"edge"'), "must be of the certificate's node, airprune://lab/device/d0"),
        ("d0", edit("node.toml", ":8701", ""), "An address must be host:port, got '127.0.0.1'."),
        ("d0", edit("node.toml", ":8701", ":99999"), "An address must be host:port"),
        ("d0", edit("node.toml", "[parents]", "[listen]"), "node.toml.listen must be"),
        ("e0", edit("node.toml", "listen", "#"), "node.toml: listen must be given for the role edge, got nothing."),
        ("e0", edit("node.toml", "cloud =", "#"), "node.toml: parents must name at least one cloud, got nothing."),
    ],
)
def test_a_broken_kit_is_one_sentence(lab, name, damage, sentence):
    damage(lab / name)
    with pytest.raises(UsageError) as error:
        load_node(lab / name)
    assert sentence in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (edit("members.toml", '"d2"', '"d0"'), "members.toml: devices must have every name once, got d0 2 times."),
        (edit("members.toml", "e2 = []", ""), "addresses must have the cloud and the edges that devices has"),
    ],
)
def test_a_list_of_members_that_contradicts_itself_is_refused(lab, damage, sentence):
    damage(lab / "cloud")
    with pytest.raises(InvalidValue, match=re.escape(sentence)):
        load_members(lab / "cloud")


# The commands


def test_the_commands_print_what_they_made(command, tmp_path):
    lab = tmp_path / "lab"
    arguments = (
        "--edges",
        1,
        "--devices-per-edge",
        2,
        "--standby",
        1,
        "--host",
        "e0=192.168.1.10",
        "--federation",
        "lab",
    )
    status, printed, said = command("deploy", "init", lab, *arguments)
    assert status == 0 and printed.split() == [str(lab / name) for name in ("cloud", "e0", "e1", "d0", "d1")]
    assert "only nodes on the same machine reach cloud, e1" in said
    serial = serial_of((lab / "d1" / "node.pem").read_bytes())
    assert command("deploy", "revoke", lab, "d1")[:2] == (0, f"{serial}\n")
    assert command("deploy", "renew", lab, "d1", "--days", 2)[:2] == (0, f"{lab / 'd1'}\n")
    assert serial_of(load_node(lab / "d1").certificate) != serial


SIZE = ("--edges", "2", "--devices-per-edge", "3")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("init", "NEW"), "Missing option '--edges'."),
        (("init", "LAB", *SIZE), "already holds a federation; add nodes to it with `airprune deploy add`, or choose"),
        (("init", "NEW", "--edges", "0", "--devices-per-edge", "3"), "greater than or equal to 1"),
        (("init", "NEW", "--edges", "2", "--devices-per-edge", "x"), "--devices-per-edge must be a number, or one for"),
        (("init", "NEW", "--edges", "2", "--devices-per-edge", "1,0"), "must be a whole number ≥ 1 and ≤ 10000, got 0"),
        (("init", "NEW", "--edges", "2", "--devices-per-edge", "1,2,3"), "must have one entry for each of 2 edges"),
        (("init", "NEW", "--edges", "2", "--devices-per-edge", "9999"), "must have at most 10,000 nodes, got 20,001."),
        (("init", "NEW", *SIZE, "--host", "e0"), "--host must be NAME=HOST, got 'e0'. Example: --host e0=192.168.1.10"),
        (("init", "NEW", *SIZE, "--host", "d0=a"), "host must be of the cloud or an edge (cloud, e0, e1), got 'd0'."),
        (("init", "NEW", *SIZE, "--host", "e0=a:80"), "must be an IP address or a name, without a port, got 'a:80'."),
        (("init", "NEW", *SIZE, "--host", "e0=1.2.3.400"), "must be an IP address or a name"),
        (("init", "NEW", *SIZE, "--host", "e0=a", "--host", "e0=b"), "must be given once for each name, got e0 twice."),
        (("init", "NEW", *SIZE, "--port", "65534"), "first_port must be a whole number ≥ 1 and ≤ 65533, got 65534."),
        (("init", "NEW", *SIZE, "--federation", "A b"), "lower-case letters, digits and inner hyphens, got 'A b'."),
        (("init", "LAB/d0/node.pem/x", *SIZE), "cannot be written: "),
        (("revoke", "LAB", "d9"), "node 'd9' is unknown; "),
        (("revoke", "LAB", "../d0"), "node '../d0' is unknown; "),
        (("revoke", "LAB", "cloud"), "The cloud cannot be revoked, since it is the one that refuses"),
        (("revoke", "NEW", "d0"), "holds no federation: authority/ca.pem is missing"),
        (("renew", "LAB", "d0", "--days", "0"), "greater than or equal to 1"),
        (("renew", "NEW", "d0"), "holds no federation"),
    ],
)
def test_what_is_asked_wrongly_is_one_sentence_and_changes_nothing(command, made, tmp_path, arguments, sentence):
    places = {"LAB": made / "lab", "NEW": tmp_path / "new"}
    given = [re.sub("^(LAB|NEW)", lambda match: str(places[match[0]]), word) for word in arguments]
    status, printed, said = command("deploy", *given)
    assert (status, printed, said.count("\n")) == (2, "", 1)
    assert said.startswith("error: ") and sentence in said
    assert list(tmp_path.iterdir()) == [] and not list((made / "lab").rglob("denied.toml"))
