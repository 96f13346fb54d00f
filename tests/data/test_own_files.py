"""Samples of one's own in files: CSV, NPZ, LEAF, PFLlib and folders of images, with their owners."""

import json
import pickle

import numpy as np
import pytest
from PIL import Image

import airprune as ap
from airprune.cli import main
from airprune.data import as_dataset
from airprune.data.files.leaf import ALPHABET
from airprune.errors import AirpruneError, InvalidValue
from airprune.scenario import Scenario
from airprune.scenario.data import dataset_of, samples_by_device

RNG = np.random.default_rng(0)
WHO = ("ann", "bob", "cy", "di")


def written(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path):
    """80 rows of four people; a row's first number is its place, which says whose it is."""
    rows = [f"{WHO[n % 4]},{n},{n % 7},{('no', 'yes')[n % 2]}" for n in range(80)]
    return written(tmp_path / "people.csv", "\n".join(["person,place,b,label", *rows]))


def test_a_column_of_a_csv_names_the_owner_and_text_labels_are_classes_in_sorted_order(table):
    data = as_dataset(table, owner="person")
    assert data.feature_shape == (2,) and data.class_names == ("no", "yes") and data.owner_names == WHO
    for x, y, owner in (
        (data.train_x, data.train_y, data.train_owner),
        (data.test_x, data.test_y, data.test_owner),
    ):
        np.testing.assert_array_equal(owner, x[:, 0] % 4)
        np.testing.assert_array_equal(y, x[:, 0] % 2)


def test_a_share_of_each_owners_samples_is_held_out(table):
    data = as_dataset(table, owner="person", test_share=0.25)
    assert np.bincount(data.test_owner).tolist() == [5, 5, 5, 5]  # a quarter of 20 each
    uneven = as_dataset((np.ones((12, 2)), np.arange(12) % 2), owner=["solo", *["many"] * 11])
    assert np.bincount(uneven.train_owner).tolist() == [9, 1]  # 0.2 · 11 = 2.2; a lone sample stays to train on


def test_as_many_owners_as_devices_come_in_their_order(table):
    changes = {"data.path": str(table), "data.owner_column": "person", "data.partition": "natural"}
    scenario = Scenario.preset("smoke").with_values({**changes, "data.standardize": False})
    data = dataset_of(scenario)
    parts = samples_by_device(scenario, data, scenario.build_network())
    assert [set((data.train_x[part, 0] % 4).tolist()) for part in parts] == [{0}, {1}, {2}, {3}]


def test_a_folder_with_train_and_test_tables_keeps_its_parts(tmp_path):
    written(tmp_path / "train.csv", "a,y\n1,0\n2,1\n3,1")
    written(tmp_path / "test.csv", "a;y\n4;1")
    data = as_dataset(tmp_path)
    assert data.train_x[:, 0].tolist() == [1, 2, 3] and (data.test_x[:, 0].tolist(), data.test_y.tolist()) == ([4], [1])


def test_columns_of_a_path_are_each_scaled_by_themselves(table):
    changes = {"data.path": str(table), "data.feature_columns": ["place", "b"]}
    data = dataset_of(Scenario.preset("smoke").with_values(changes))
    np.testing.assert_allclose(data.train_x[:, :2].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(data.train_x[:, :2].std(axis=0), 1, rtol=1e-5)


def test_settings_take_some_owners_and_at_most_some_samples(table):
    changes = {"data.path": str(table), "data.owner_column": "person", "data.owners": 2, "data.train_samples": 10}
    data = dataset_of(Scenario.preset("smoke").with_values(changes))
    assert len(np.unique(data.train_owner)) == 2 and data.num_train == 10
    assert set(np.unique(data.test_owner)) <= set(np.unique(data.train_owner))
    more = dataset_of(Scenario.preset("smoke").with_values({**changes, "data.train_samples": 10_000}))
    assert more.num_train == 2 * 16


def leaf(users, **extra):
    return json.dumps({"users": list(users), "num_samples": [len(u["y"]) for u in users.values()], "user_data": users})


def test_leaf_users_are_owners_in_both_parts(tmp_path):
    users = {name: {"x": [[n, k] for k in range(5)], "y": [k % 2 for k in range(5)]} for n, name in enumerate(WHO)}
    for part in ("train", "test"):
        written(tmp_path / part / "a.json", leaf({name: users[name] for name in WHO[:2]}))
        written(tmp_path / part / "b.json", leaf({name: users[name] for name in WHO[2:]}))
    data = as_dataset(tmp_path)
    assert data.owner_names == WHO and data.num_train == data.num_test == 20
    np.testing.assert_array_equal(data.train_owner, data.train_x[:, 0])
    np.testing.assert_array_equal(data.test_owner, data.test_x[:, 0])


def test_leaf_texts_are_places_in_its_alphabet_and_flat_images_get_their_shape(tmp_path):
    written(
        tmp_path / "text.json", leaf({"u": {"x": ["ab !", "}}[]"], "y": ["c", "\n"]}, "v": {"x": ["a  b"], "y": ["z"]}})
    )
    data = as_dataset(tmp_path / "text.json", test=((np.zeros((1, 4), int)), np.array([0])))
    assert len(ALPHABET) == 80 and data.num_classes == 80
    assert ["".join(ALPHABET[place] for place in row) for row in data.train_x] == ["ab !", "}}[]", "a  b"]
    assert [ALPHABET[place] for place in data.train_y] == ["c", "\n", "z"]
    written(tmp_path / "flat.json", leaf({"u": {"x": np.arange(60).reshape(5, 12).tolist(), "y": [0, 1, 0, 1, 1]}}))
    shaped = as_dataset(tmp_path / "flat.json", sample_shape=(1, 3, 4))
    assert shaped.feature_shape == (1, 3, 4)
    assert {int(image[0, 2, 3]) for image in (*shaped.train_x, *shaped.test_x)} == {11, 23, 35, 47, 59}


def pfllib(folder, part, client, x, y):
    (folder / part).mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / part / f"{client}.npz", data={"x": x, "y": y})  # as PFLlib's save_file does


def test_pfllib_clients_are_owners_by_their_number(tmp_path):
    for client in (0, 2, 10):
        pfllib(tmp_path, "train", client, np.full((4, 1, 3, 3), client, np.float32), np.arange(4) % 2)
        pfllib(tmp_path, "test", client, np.full((2, 1, 3, 3), client, np.float32), np.arange(2.0))
    data = as_dataset(tmp_path)
    assert data.train_owner.tolist() == [0] * 4 + [2] * 4 + [10] * 4 and data.test_owner.tolist() == [
        0,
        0,
        2,
        2,
        10,
        10,
    ]
    np.testing.assert_array_equal(data.train_x[:, 0, 0, 0], data.train_owner)


class Evil:
    def __reduce__(self):
        return print, ("run by a pickle",)


def test_a_pickle_that_names_more_than_arrays_is_never_run(tmp_path, capsys):
    pfllib(tmp_path, "train", 0, np.ones((2, 2)), Evil())
    with pytest.raises(InvalidValue, match="PFLlib's dictionary"):
        as_dataset(tmp_path)
    assert capsys.readouterr().out == "" and pickle.dumps(Evil())


def image(path, value, size=(6, 4), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


def test_folders_of_images_are_classes_or_owners_with_classes(tmp_path):
    for number, kind in enumerate(("cat", "dog")):
        for n in range(5):
            image(tmp_path / "plain" / kind / f"{n}.png", 51 * number)
            for who in WHO[:2]:
                image(tmp_path / "owned" / who / kind / f"{n}.png", (255, 0, 51 * number), mode="RGB")
    plain = as_dataset(tmp_path / "plain")
    assert plain.feature_shape == (1, 4, 6) and plain.class_names == ("cat", "dog") and plain.train_owner is None
    np.testing.assert_allclose(plain.train_x[:, 0, 0, 0], plain.train_y * 0.2)
    owned = as_dataset(tmp_path / "owned", sample_shape=(3, 2, 2))
    assert owned.feature_shape == (3, 2, 2) and owned.owner_names == WHO[:2]
    np.testing.assert_allclose(owned.train_x[:, 2, 0, 0], owned.train_y * 0.2)
    for n in range(2):
        image(tmp_path / "split" / "train" / f"c{n}" / "a.png", n)
        image(tmp_path / "split" / "test" / f"c{n}" / "a.png", 9)
    split = as_dataset(tmp_path / "split")
    assert (split.num_train, split.num_test) == (2, 2) and np.allclose(split.test_x, 9 / 255)


def test_arrays_of_a_numpy_file_may_be_named_inputs(tmp_path):
    x, y = RNG.normal(size=(20, 3)), np.arange(20) % 2
    np.savez(tmp_path / "a.npz", x=x, y=y, owner=np.arange(20) % 4)
    data = as_dataset(tmp_path / "a.npz")
    assert np.bincount(data.train_owner).tolist() == [4] * 4
    np.savez(tmp_path / "b.npz", **{"x_train": x, "y_train": y, "x_test": x[:5], "y_test": y[:5]})
    assert as_dataset(tmp_path / "b.npz").num_test == 5
    np.savez(tmp_path / "c.npz", **{"x.tokens": np.arange(40).reshape(20, 2), "x.size": x[:, 0], "y": y})
    assert [one.name for one in as_dataset(tmp_path / "c.npz").fields] == ["tokens", "size"]


def test_the_hash_of_a_scenario_counts_the_content_of_its_samples_not_their_place(table, tmp_path):
    def hashed(path):
        return Scenario.preset("smoke").with_values({"data.path": str(path)}).hash

    moved = tmp_path / "elsewhere.csv"
    moved.write_bytes(table.read_bytes())
    assert hashed(table) == hashed(moved)
    moved.write_bytes(table.read_bytes() + b"\nann,1,1,yes")
    assert hashed(table) != hashed(moved)


def test_a_run_on_a_path_is_resumed_where_its_samples_are_the_same(table, tmp_path):
    changes = {"data.path": str(table), "data.owner_column": "person", "model.name": "mlp", "engine.name": "serial"}
    scenario = Scenario.preset("smoke").with_values({**changes, "rounds.global_rounds": 2})
    records = ap.run(scenario, out=tmp_path / "run")
    next(records)
    records.close()
    whole = [record for record in ap.run(scenario) if record["kind"] == "global"]
    *_, last = ap.run(scenario, out=tmp_path / "run", resume=True)
    assert last["test_loss"] == whole[-1]["test_loss"]


@pytest.mark.parametrize(
    ("name", "text", "options", "sentence"),
    [
        ("a.csv", "a,y\n1,0\n2,1", {"owner": "who"}, "must have the owner column 'who', got columns 'a', 'y'"),
        ("a.csv", "a,b\n1,0\n2,1", {}, "must have a target in a column label"),
        ("a.csv", "a,b\n1,0\n2,1", {"target": "c"}, "must have the target column 'c'"),
        ("a.csv", "a,y\n1,0\n2", {}, r"line 3.*2 columns are named, but there are 1 values"),
        ("a.csv", "a,y\n1,0\nred,1", {}, r"line 3.*column 'a' must hold numbers, got 'red'"),
        ("a.csv", "a,y\n1,0\n2,x", {}, r"line 3.*must hold numbers or names, got 'x' among numbers"),
        ("a.csv", "a,y\n1,0.5\n2,1", {}, "must be a vector of whole numbers"),
        ("a.csv", "a,a\n1,0", {}, "must name each column once, got 'a' twice"),
        ("a.csv", "a,y", {}, "must have a header and samples"),
        ("a.csv", "a,y,w\n1,0,z\n2,1,", {"owner": "w"}, r"line 3.*must name an owner"),
        ("a.json", "[1]", {}, "must be LEAF's JSON"),
        ("a.json", '{"user_data": {"u": {"x": [[1],[2]], "y": [0]}}}', {}, "user u must have lists x and y of one"),
        ("a.json", '{"user_data": {"u": {"x": [[1],[2, 3]], "y": [0, 1]}}}', {}, "must have numbers of one shape"),
        ("a.json", '{"user_data": {"u": {"x": ["a","bc"], "y": ["a", "b"]}}}', {}, "must have texts of one length"),
        ("a.json", '{"user_data": {"u": {"x": [[1, 2]], "y": [0]}}}', {"sample_shape": (3,)}, "of 3 numbers for"),
        ("a.npz", "no", {}, "must be a NumPy file"),
        ("a.txt", "no", {}, "must hold samples, got another kind"),
        ("c/a.png", "no", {}, "must be an image"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(tmp_path, name, text, options, sentence):
    path = written(tmp_path / "in" / name, text)
    with pytest.raises(AirpruneError, match=sentence):
        as_dataset(path.parent.parent if path.suffix == ".png" else path, **options)


def test_other_wrong_paths_are_refused_in_a_sentence(tmp_path):
    with pytest.raises(InvalidValue, match="must exist, got no file or folder of that name"):
        as_dataset(tmp_path / "none.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidValue, match="must hold samples, got an empty folder"):
        as_dataset(tmp_path / "empty")
    for n, size in enumerate([(6, 4), (5, 5)]):
        image(tmp_path / "sizes" / "cat" / f"{n}.png", 0, size)
    with pytest.raises(InvalidValue, match=r"must have the size of the first image, 6 x 4, got 5 x 5. To resize"):
        as_dataset(tmp_path / "sizes")
    image(tmp_path / "flat" / "0.png", 0)
    with pytest.raises(InvalidValue, match=r"CLASS/name\.png"):
        as_dataset(tmp_path / "flat")
    pfllib(tmp_path / "p", "train", 0, np.ones((2, 2)), np.zeros(2, int))
    pfllib(tmp_path / "p", "test", 1, np.ones((2, 2)), np.zeros(2, int))
    with pytest.raises(InvalidValue, match="the same clients in train and test, got client 1"):
        as_dataset(tmp_path / "p")


def test_the_command_line_trains_on_a_path_and_reports_a_missing_one(table, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    changes = ["model.name=mlp", "engine.name=serial", "rounds.global_rounds=1", "data.partition=natural"]
    own = [f"data.path={table}", "data.owner_column=person"]
    assert main(["run", "smoke", *own, *changes, "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["run", "smoke", "data.path=none.csv", *changes, "--out", "other"]) == 2
    assert "must exist" in capsys.readouterr().err
