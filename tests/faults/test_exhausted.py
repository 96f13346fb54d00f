"""A machine that has run out of open files, space or memory is named; no data set is blamed for it."""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

import numpy as np
import pytest

from airprune.cli import main
from airprune.data.convert import as_dataset
from airprune.data.idx import BadFile, verified_file
from airprune.data.mirrors import download
from airprune.data.packages import _found, _run
from airprune.data.shared import save_shared
from airprune.deployment.own_data import _read
from airprune.engines.children import Child
from airprune.errors import Exhausted, exhausted_by, raise_if_exhausted
from support.tiny import blobs


@contextlib.contextmanager
def no_open_file_left() -> Iterator[None]:
    """As under a low `ulimit -n`: the next file that is opened is one too many."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    first = os.open(os.devnull, os.O_RDONLY)
    resource.setrlimit(resource.RLIMIT_NOFILE, (first + 1, before[1]))
    taken = [first]
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for descriptor in taken:
            os.close(descriptor)


@pytest.fixture
def readers(tmp_path):
    """Everything that reads samples, from files that are whole."""
    file = tmp_path / "labels"
    file.write_bytes(b"\0\0\x08\1\0\0\0\1\7")
    np.savez(tmp_path / "own.npz", x=np.zeros((2, 3)), y=np.zeros(2))
    shared = save_shared(as_dataset(blobs()), tmp_path / "shared")
    return {
        "published": lambda: verified_file(file, sha256="", num_bytes=9),
        "shared": shared.open,
        "mapped": lambda: shared._map("train_x", {}),
        "own": lambda: _read(tmp_path / "own.npz"),
        "package": lambda: _found(tmp_path, "labels", 100),
        "tool": lambda: _run(tmp_path, "true"),
        "mirror": lambda: download("http://127.0.0.1:9/labels.gz", max_bytes=10),
    }


@pytest.mark.parametrize("reader", ["published", "shared", "mapped", "own", "package", "tool", "mirror"])
def test_the_limit_of_open_files_is_named_and_no_data_set_is_blamed(readers, reader):
    with pytest.raises(Exhausted) as caught, no_open_file_left():
        readers[reader]()
    sentence = str(caught.value)
    assert "limit of open files (`ulimit -n` is " in sentence and "raise it" in sentence
    assert "save" not in sentence and "cannot be read" not in sentence and caught.value.exit_status == 1


def test_a_worker_that_cannot_be_started_for_want_of_open_files_says_so(monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("airprune.engines.children.subprocess.Popen", refuse)
    with pytest.raises(Exhausted, match=r"ulimit -n"):
        Child.start("-c", "pass")


def test_a_damaged_file_is_still_to_blame(tmp_path):
    (tmp_path / "labels").write_bytes(b"no IDX")
    with pytest.raises(BadFile):
        verified_file(tmp_path / "labels", sha256="", num_bytes=9)
    with pytest.raises(BadFile, match="No such file"):
        verified_file(tmp_path / "none", sha256="", num_bytes=9)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EMFILE, "`ulimit -n 1024`"),
        (errno.ENFILE, "This machine has reached its limit of open files"),
        (errno.ENOSPC, "no space left on the device (/data/x)"),
        (errno.EDQUOT, "quota of this user is used up (/data/x)"),
        (errno.ENOMEM, "not enough memory"),
    ],
)
def test_what_the_machine_has_run_out_of_is_named(number, words):
    assert words in str(exhausted_by(OSError(number, os.strerror(number), "/data/x")))


@pytest.mark.parametrize("error", [OSError(errno.EACCES, "no"), OSError("no number"), ValueError("x")])
def test_other_errors_are_left_to_the_caller(error):
    raise_if_exhausted(error)
    assert exhausted_by(error) is None


def test_a_command_that_runs_out_of_open_files_ends_in_one_sentence(monkeypatch, capsys):
    def refuse(*_):
        raise OSError(errno.EMFILE, "Too many open files", "x")

    monkeypatch.setattr("airprune.cli.app.app_for", refuse)
    assert main(["methods"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: This process has reached its limit of open files") and error.count("\n") == 1
