"""Where files come from: the order of the ways, what is refused, and that only loopback is ever needed."""

import contextlib
import gzip
import hashlib
import http.server
import subprocess
import sys
import tarfile
import threading
import tracemalloc
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pytest

from airprune.data import fetch_dataset, load_dataset
from airprune.data import packages as package_tools
from airprune.data.idx import BadFile, parse_idx, unpacked
from airprune.data.mirrors import NotAvailable, download
from airprune.data.packages import DebianPackage, NpmPackage
from airprune.data.published import PublishedFile, cache_folder
from airprune.data.sources import IdxSource
from airprune.errors import UsageError, WorkFailed

NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape)
    return head + array.astype(np.uint8).tobytes()


RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (30, 4, 5)), RNG.integers(0, 256, (10, 4, 5))
BLOBS = dict(zip(NAMES, (idx(PIXELS[0]), idx(np.arange(30) % 3), idx(PIXELS[1]), idx(np.arange(10) % 3)), strict=True))
FILES = tuple(PublishedFile(name, hashlib.sha256(blob).hexdigest(), len(blob)) for name, blob in BLOBS.items())


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch, request):
    """An empty cache of our own, except where a test asks for the real datasets."""
    if "real_cache" in request.fixturenames:
        return None
    monkeypatch.setenv("AIRPRUNE_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path / "cache"


@pytest.fixture
def real_cache():
    """The user's own cache: the test fetches what is not there."""


@pytest.fixture
def source(tmp_path):
    return IdxSource(name="tiny", files=FILES, num_classes=3, system_folder=tmp_path / "system")


def put(folder: Path, *, packed: bool = False, **changes: bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, blob in {**BLOBS, **changes}.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(blob))
        else:
            (folder / name).write_bytes(blob)
    return folder


@contextlib.contextmanager
def mirror(answers: dict[str, bytes], *, cut: int = 0, status: int = 200):
    """A server on loopback; `cut` promises more bytes than it sends."""
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            seen.append(self.path)
            content = answers.get(self.path.strip("/"))
            self.send_response(404 if content is None else status)
            self.send_header("Content-Length", str(len(content or b"") + cut))
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


PACKED = {f"{name}.gz": gzip.compress(blob) for name, blob in BLOBS.items()}


# The IDX format


def test_idx_reads_back_what_was_written():
    np.testing.assert_array_equal(parse_idx(BLOBS[NAMES[0]]), PIXELS[0])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "empty file"),
        (b"\0", "two zero bytes"),
        (b"PK\x03\x04" + bytes(100), "two zero bytes"),
        (bytes([0, 0, 13, 1, 0, 0, 0, 1]) + bytes(4), "type 0x0d"),
        (bytes([0, 0, 8, 0]), "truncated"),
        (bytes([0, 0, 8, 255]) + bytes(40), "truncated"),
        (bytes([0, 0, 8, 3, 0, 0]), "truncated"),
        (BLOBS[NAMES[0]][:-1], "must hold 600 values"),
        (BLOBS[NAMES[0]] + b"\0", "must hold 600 values"),
        (bytes([0, 0, 8, 4]) + b"\xff" * 16 + bytes(10), "must hold 340,282,366"),
    ],
)
def test_hostile_idx_is_refused_in_a_sentence(content, sentence):
    with pytest.raises(BadFile, match=sentence):
        parse_idx(content)


def test_a_gzip_bomb_is_stopped_at_the_size_it_should_have(tmp_path):
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(200)) + packer.flush()
    assert len(bomb) < 300_000
    path = tmp_path / "bomb.gz"
    path.write_bytes(bomb)
    tracemalloc.start()
    with path.open("rb") as file, pytest.raises(BadFile, match="unpacks to more than the 1,000 bytes"):
        unpacked(file, max_bytes=1_000)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 << 20  # a piece of the packed file, not its 200 MB


# Which way wins


def test_each_way_is_tried_in_the_documented_order(source, tmp_path, cache):
    data_dir, system = tmp_path / "mine", tmp_path / "system"
    with mirror(PACKED) as (url, seen):
        source = replace(source, mirrors=(url,))
        put(system, packed=True)
        put(cache / "tiny")
        put(data_dir / "tiny")
        assert source.fetch(data_dir) == (data_dir / "tiny", "--data-dir")
        assert source.fetch() == (cache / "tiny", "cache")
        for path in (cache / "tiny").iterdir():
            path.unlink()
        assert source.fetch() == (system, "system folder")
        for path in system.iterdir():
            path.unlink()
        assert not seen
        assert source.fetch() == (cache / "tiny", "mirror 127.0.0.1")
        assert len(seen) == 4
        assert source.fetch() == (cache / "tiny", "cache")
        assert len(seen) == 4


@pytest.mark.parametrize("layout", ["tiny", ".", "Tiny/raw"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_usual_layouts_of_a_data_folder_are_found(source, tmp_path, layout, packed):
    put(tmp_path / "d" / layout, packed=packed)
    source = replace(source, torchvision_name="Tiny")
    assert source.find(tmp_path / "d") == tmp_path / "d" / layout
    dataset = source.load(tmp_path / "d")
    np.testing.assert_allclose(dataset.train_x[:, 0], PIXELS[0] / 255.0, rtol=1e-7)  # float32
    np.testing.assert_array_equal(dataset.test_y, np.arange(10) % 3)


def test_fetching_into_a_folder_puts_the_files_there(source, tmp_path, cache):
    put(cache / "tiny")
    folder, way = source.fetch(tmp_path / "mine")
    assert (folder, way) == (tmp_path / "mine" / "tiny", "cache")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == BLOBS


def test_cache_folder_follows_the_environment(monkeypatch):
    assert cache_folder().name == "cache"
    monkeypatch.delenv("AIRPRUNE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", "/x")
    assert cache_folder() == Path("/x/airprune")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/airprune")


# Wrong files


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (BLOBS[NAMES[0]][:-1], "must have 616 bytes uncompressed, got 615"),
        (BLOBS[NAMES[0]] + b"x", "is larger than the 616 bytes"),
        (BLOBS[NAMES[0]][:-1] + b"\x01", "must have SHA-256 .*, got"),
        (gzip.compress(BLOBS[NAMES[0]])[:-12], "is truncated gzip"),
        (b"\x1f\x8b" + bytes(50), "is damaged gzip"),
        (gzip.compress(bytes(10_000_000)), "unpacks to more than"),
        (b"", "must have 616 bytes uncompressed, got 0"),
    ],
)
def test_a_wrong_file_in_the_users_folder_is_an_error(source, tmp_path, wrong, sentence):
    put(tmp_path / "d", **{NAMES[0]: wrong})
    with pytest.raises(UsageError, match=rf"d/{NAMES[0]} {sentence}.*replace it or choose another --data-dir\."):
        source.load(tmp_path / "d")


def test_a_damaged_cache_heals_itself(source, cache):
    put(cache / "tiny", **{NAMES[2]: b"junk"})
    with mirror(PACKED) as (url, _):
        assert replace(source, mirrors=(url,)).fetch() == (cache / "tiny", "mirror 127.0.0.1")
    assert {path.name: path.read_bytes() for path in (cache / "tiny").iterdir()} == BLOBS


def test_a_mirror_with_other_contents_is_passed_over(source):
    other = {**PACKED, f"{NAMES[1]}.gz": gzip.compress(idx(np.zeros(30)))}
    with mirror(other) as (bad, _), mirror(PACKED) as (good, _):
        source = replace(source, mirrors=(bad, good))
        assert source.load().num_train == 30
        with pytest.raises(WorkFailed, match=f"{NAMES[1]} must have SHA-256"):
            replace(source, name="again", mirrors=(bad,)).load()


def test_downloads_are_limited_and_say_what_went_wrong():
    with mirror({"big": bytes(5_000)}) as (url, _):
        assert download(f"{url}/big", max_bytes=5_000) == bytes(5_000)
        with pytest.raises(NotAvailable, match="big is larger than 4,999 bytes"):
            download(f"{url}/big", max_bytes=4_999)
        with pytest.raises(NotAvailable, match="absent: HTTP status 404"):
            download(f"{url}/absent", max_bytes=10)
    with pytest.raises(NotAvailable, match="refused"):  # the server is gone now
        download(f"{url}/big", max_bytes=10)
    with mirror({"cut": bytes(100)}, cut=50) as (url, _), pytest.raises(NotAvailable):
        download(f"{url}/cut", max_bytes=1_000)


def test_a_read_only_cache_does_not_stop_loading(source, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AIRPRUNE_DATA", str(tmp_path / "file"))
    with mirror(PACKED) as (url, _):
        source = replace(source, mirrors=(url,))
        assert source.load().num_test == 10
        with pytest.raises(WorkFailed, match="was not written"):
            source.fetch()


def test_when_every_way_fails_the_error_names_each_and_the_way_out(source, tmp_path):
    @dataclass(frozen=True)
    class NoPackage:
        label: str = "package of nobody"

        def read(self, max_bytes):
            raise NotAvailable("nobody has it")

    with mirror({}) as (url, _):
        source = replace(source, mirrors=(url,), packages=(NoPackage(),))
        with pytest.raises(WorkFailed) as caught:
            source.load(tmp_path / "nowhere")
    message = str(caught.value)
    assert "\n" not in message
    for words in (
        "--data-dir: ",
        "cache: ",
        "system folder: ",
        "mirror 127.0.0.1: train-images-idx3-ubyte.gz: HTTP status 404",
        "package of nobody: nobody has it",
        "`airprune data fetch tiny`",
        "glyphs",
    ):
        assert words in message


def test_two_processes_that_fetch_at_once_both_succeed(cache):
    code = (
        "import sys; from pathlib import Path; from airprune.data.published import PublishedFile\n"
        "from airprune.data.sources import IdxSource\n"
        "url, files, folder = sys.argv[1], eval(sys.argv[2]), Path(sys.argv[3])\n"
        "source = IdxSource(name='tiny', files=files, num_classes=3, mirrors=(url,), system_folder=folder / 'none')\n"
        "for _ in range(20):\n"
        "    [path.unlink(missing_ok=True) for path in folder.glob('*-ubyte')]\n"
        "    source.fetch()\n"
        "print(source.load().num_train)"
    )
    with mirror(PACKED) as (url, _):
        command = [sys.executable, "-c", code, url, repr(FILES), str(cache / "tiny")]
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        assert [process.communicate(timeout=60)[0] for process in both] == ["30\n", "30\n"]
    assert {path.name: path.read_bytes() for path in (cache / "tiny").iterdir()} == BLOBS


# Packages


@dataclass
class FakeTools:
    """Stands in for apt-get, dpkg-deb and npm: notes the commands, leaves the files that they would."""

    fail: set[str] = field(default_factory=set)
    commands: list[str] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=lambda: BLOBS)

    def __call__(self, folder: Path, *command: str) -> None:
        line = " ".join(command)
        self.commands.append(line)
        for words in self.fail:
            if words in line:
                raise NotAvailable(f"{command[0]}: no")
        if "download" in command:
            (folder / "x.deb").write_bytes(b"")
        elif "update" in command:
            self.fail -= {"download"}
        elif "-x" in command:
            put(folder / "x" / "usr/data", packed=True)
        elif "pack" in command:
            put(folder / "package" / "data", **self.blobs)
            with tarfile.open(folder / "x.tgz", "w:gz") as tar:
                tar.add(folder / "package", "package")


@pytest.fixture
def tools(monkeypatch):
    fake = FakeTools()
    monkeypatch.setattr(package_tools, "_run", fake)
    monkeypatch.setattr(package_tools, "_need", lambda *_: None)
    return fake


@pytest.mark.parametrize("package", [DebianPackage("p", "usr/data"), NpmPackage("p", "1.0.0", "package/data")])
def test_packages_give_verified_files(source, tools, cache, package):
    folder, way = replace(source, packages=(package,)).fetch()
    assert (folder, way) == (cache / "tiny", package.label)
    assert source.load().num_train == 30


def test_root_updates_the_package_lists_once_if_they_lack_the_package(source, tools, monkeypatch):
    tools.fail = {"download"}
    monkeypatch.setattr(package_tools.os, "geteuid", lambda: 0)
    replace(source, packages=(DebianPackage("p", "usr/data"),)).fetch()
    words = [command.split()[2] for command in tools.commands if command.startswith("apt-get")]
    assert words == ["download", "update", "download"]


def test_others_do_not_touch_the_package_lists(source, tools, monkeypatch):
    tools.fail = {"download"}
    monkeypatch.setattr(package_tools.os, "geteuid", lambda: 1000)
    with pytest.raises(WorkFailed, match="Debian package p: apt-get: no"):
        replace(source, packages=(DebianPackage("p", "usr/data"),)).fetch()
    assert len(tools.commands) == 1


def test_a_package_whose_file_is_too_large_is_refused(source, tools):
    tools.blobs = {**BLOBS, NAMES[0]: bytes(10_000_000)}
    with pytest.raises(WorkFailed, match="its train-images-idx3-ubyte is no file of at most"):
        replace(source, packages=(NpmPackage("p", "1.0.0", "package/data"),)).fetch()


def test_a_missing_tool_is_a_reason_not_a_crash(source, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    packages = (DebianPackage("p", "x"), NpmPackage("p", "1.0.0", "x"))
    with pytest.raises(WorkFailed, match=r"apt-get is not installed.*npm is not installed"):
        replace(source, packages=packages).load()


# The real ones


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_real_datasets_load_verified(name, real_cache):
    dataset = load_dataset(name)
    assert dataset.train_x.shape == (60_000, 1, 28, 28) and dataset.test_x.shape == (10_000, 1, 28, 28)
    assert (dataset.train_x.min(), dataset.train_x.max()) == (0.0, 1.0)
    assert np.bincount(dataset.train_y).min() == {"mnist": 5_421, "fashion-mnist": 6_000}[name]  # as published
    some = load_dataset(name, train_samples=100, test_samples=50, seed=1)
    more = load_dataset(name, train_samples=200, seed=1)
    assert (some.num_train, some.num_test, more.num_test) == (100, 50, 10_000)
    np.testing.assert_array_equal(some.train_x, more.train_x[:100])
    assert not np.array_equal(some.train_y, dataset.train_y[:100])
    assert fetch_dataset(name)[0] is not None
