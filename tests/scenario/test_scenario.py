import json
import os
import pickle
import subprocess
import sys
import time
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airprune.errors import AirpruneError, BadTable, InvalidValue, UnknownName, UsageError
from airprune.methods.objectives import Objective
from airprune.methods.registration import register
from airprune.planning import PlanProblem
from airprune.planning.schemes import plan
from airprune.scenario import PlanSection, RadioSection, Scenario, presets
from airprune.scenario.sections import TrainSection
from airprune.settings.toml_text import flat as dotted
from airprune.wireless.channel import Radio, full_band_rates
from airprune.wireless.latency import seconds_per_weight
from airprune.wireless.network import place_flat, place_hierarchical
from support.each import each

PAPER = Scenario.preset("paper")


def flat(scenario):
    return dotted(scenario.to_dict())


def leaf_schemas():
    """Dotted key to JSON schema of every value, the options of all components included."""
    schema = Scenario.json_schema()
    for section, part in schema["properties"].items():
        if "$ref" not in part:
            yield section, part
            continue
        yield from leaves_of(section, schema["$defs"][part["$ref"].rsplit("/", 1)[1]]["properties"])


def leaves_of(home, properties):
    for key, leaf in properties.items():
        if "properties" in leaf:
            yield from leaves_of(f"{home}.{key}", leaf["properties"])
        else:
            yield f"{home}.{key}", leaf


LEAVES = dict(leaf_schemas())
CHOICES = {f"{section}.{field}": registry for section, field, registry in Scenario.choice_fields()}
# Options of components that the paper's scenario does not choose, and the choice that brings them in.
TABLES = {
    f"{section}.{name}": {f"{section}.{field}": name}
    for section, field, registry in Scenario.choice_fields()
    for name in registry
}


FLOPS = {"clock.compute": "flops", "clock.board": "raspberry-pi-4"}
MORE_FLOPS = {"clock.flops_per_cycle": {"clock.board": None, "clock.flops_per_cycle": 2.0}}
MEASURED = {"clock.seconds_per_sample": 1e-3, "clock.at_hz": 1e9, "clock.flops_per_sample": 1e6}


def chosen_for(key):
    """The choice that a component's option needs, or a clock or clipping that reads the key; nothing for other keys."""
    if key.startswith("clock."):
        return {"clock.compute": "measured"} | MEASURED if key in MEASURED else FLOPS | MORE_FLOPS.get(key, {})
    if key.startswith("privacy."):
        return {"privacy.clip_norm": 1.0}
    if key == "network.mobility":
        return {"network.speed_m_per_s": 1.5}
    if key == "radio.num_streams":
        return {"radio.num_antennas": 4, "radio.fading": "rayleigh"}
    return TABLES.get(key.rpartition(".")[0], {})


def sentence(error):
    """The message, after checking that it is one line and none of pydantic's."""
    text = str(error)
    assert "\n" not in text and "pydantic" not in text and len(text) < 500
    return text


# Table I and the presets


def test_the_paper_preset_has_the_values_of_table_1():
    table_1 = {
        "network.num_edges": 5,
        "network.devices_per_edge": 5,
        "network.cpu_hz": 3e9,
        "radio.bandwidth_hz": 20e6,
        "radio.transmit_power_dbm": 28,
        "radio.noise_power_dbm": -110,
        "data.train_samples": 50_000,
        "data.test_samples": 10_000,
        "plan.deadline_s": 0.030,
        "plan.bits_per_weight": 64,
        "plan.cycles_per_weight": 20,
        "plan.local_iterations": 2,
        "train.learning_rate": 0.001,
        "train.batch_size": 128,
        "train.local_epochs": 2,
        "rounds.global_rounds": 10,
        "rounds.edge_rounds": 5,
    }
    values = flat(PAPER)
    assert {key: values[key] for key in table_1} == table_1


def test_the_defaults_are_the_paper_preset():
    assert Scenario(name="paper") == PAPER


def test_the_paper_preset_builds_the_paper_network_and_radio():
    built, known = PAPER.build_network(), place_hierarchical(seed=0)
    np.testing.assert_array_equal(built.device_position_m, known.device_position_m)
    np.testing.assert_array_equal(built.cpu_hz, known.cpu_hz)
    radio = PAPER.build_radio()
    assert radio.band_noise_w == Radio().band_noise_w
    assert radio.transmit_power_w == pytest.approx(0.631, abs=1e-3)  # 28 dBm, three digits


@pytest.mark.parametrize("name", presets())
def test_every_preset_loads_says_what_it_is_and_takes_its_own_name(name):
    assert Scenario.preset(name).name == name
    assert presets()[name].endswith((".", "?")) and "#" not in presets()[name]


def test_paper_converged_changes_only_learning_rate_and_momentum():
    changed = {key for key, *_ in Scenario.preset("paper-converged").diff(PAPER)}
    assert changed == {"name", "train.learning_rate", "train.momentum"}


def test_non_iid_changes_only_the_partition_of_paper_converged():
    changed = {key for key, *_ in Scenario.preset("non-iid").diff(Scenario.preset("paper-converged"))}
    assert changed == {"name", "data.partition"}


@pytest.mark.parametrize("seed", range(5))
def test_compute_matters_in_hetero_cpu_and_every_edge_still_has_a_plan(seed):
    scenario = Scenario.preset("hetero-cpu").with_("seed", seed)
    network, wish = scenario.build_network(), scenario.plan
    a = seconds_per_weight(
        local_iterations=wish.local_iterations, cycles_per_weight=wish.cycles_per_weight, cpu_hz=network.cpu_hz
    )
    problem = PlanProblem(
        edge=network.edge,
        full_band_rate_bps=full_band_rates(network, scenario.build_radio(), seed=seed),
        seconds_per_weight=a,
        deadline_s=wish.deadline_s,
        max_pruning_ratio=wish.max_pruning_ratio,
    )
    assert not plan(problem).failed.any()
    assert (a * 43_888).max() > wish.deadline_s / 4


def test_smoke_is_small():
    smoke = Scenario.preset("smoke")
    assert (smoke.num_devices, smoke.data.name, smoke.data.train_samples) == (4, "glyphs", 1600)


def test_an_unknown_preset_lists_the_known_and_the_nearest():
    with pytest.raises(UnknownName, match=r"'papr' is unknown; did you mean 'paper'\? known: .*smoke"):
        Scenario.preset("papr")
    with pytest.raises(UnknownName):
        Scenario.preset("../presets/paper")


# Reading, writing, changing


def values_of(schema):
    if "anyOf" in schema:
        return st.one_of([values_of(choice) for choice in schema["anyOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    match schema["type"]:
        case "null":
            return st.none()
        case "boolean":
            return st.booleans()
        case "integer":
            return st.integers(schema["minimum"], schema["maximum"])
        case "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
            high = schema.get("maximum", schema.get("exclusiveMaximum", sys.float_info.max))
            return st.floats(low, high, exclude_min="minimum" not in schema, exclude_max="exclusiveMaximum" in schema)
        case "string":
            return st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
        case "array":
            return st.lists(values_of(schema["items"]), max_size=4)


COUPLED = {
    "network.num_edges", "network.devices_per_edge", "network.inner_m", "network.outer_m", "network.flat_inner_m",
    "network.flat_outer_m", "network.cpu_hz", "network.cpu_hz_max", "radio.noise_power_dbm", "radio.noise_figure_db",
    "radio.noise_density_dbm_per_hz", "radio.path_loss", "radio.slice_noise", "radio.rate", "radio.reuse",
    "radio.csi_correlation", "radio.csi_delay_s", "radio.pilots", "radio.num_streams", "network.mobility",
    "network.traces", "plan.on_time", "plan.scheme", "plan.min_pruning_ratio",
    "plan.max_pruning_ratio", "rounds.edge_rounds", "method", "train.kernel", "train.loss", "train.metric", *CHOICES,
    "evaluation.metrics", "data.partition",
    "clock.compute", "clock.board", "clock.cores", "clock.flops_per_cycle", "clock.profile",
    "privacy.noise_multiplier",
}  # fmt: skip


CLOCKS = (
    {},
    {"clock.compute": "flops", "clock.board": "raspberry-pi-4", "clock.cores": 2},
    {"clock.compute": "flops", "clock.flops_per_cycle": 0.1},
    {"clock.compute": "measured", "clock.seconds_per_sample": 1e-3, "clock.at_hz": 1e9},
)


@st.composite
def scenarios(draw):
    free = {key: values_of(schema) for key, schema in LEAVES.items() if key not in COUPLED and key.count(".") < 2}
    changes = draw(st.fixed_dictionaries({}, optional=free))
    counts = st.lists(st.integers(1, 100), min_size=1, max_size=6)
    sizes = draw(counts)
    changes |= {"network.num_edges": len(sizes), "network.devices_per_edge": draw(st.sampled_from([sizes, 3]))}
    changes["rounds.edge_rounds"] = draw(st.sampled_from([sizes, 4]))
    low, high = sorted(draw(st.tuples(st.floats(0, 1), st.floats(0, 1))))
    changes |= {"plan.min_pruning_ratio": low, "plan.max_pruning_ratio": high}
    noise = draw(st.sampled_from(["noise_power_dbm", "noise_density_dbm_per_hz"]))
    changes[f"radio.{noise}"] = draw(st.floats(-300, 300))
    changes |= draw(st.sampled_from(CLOCKS))
    return PAPER.with_values(changes)


@settings(max_examples=60)
@given(scenarios())
def test_toml_gives_back_the_same_scenario_to_the_last_bit(scenario):
    again = Scenario.from_text(scenario.to_toml())
    assert again == scenario
    assert again.to_toml() == scenario.to_toml()


def test_the_written_toml_is_complete():
    written = tomllib.loads(Scenario.preset("smoke").to_toml())
    others = {key for key in LEAVES if key.count(".") == 2 and key not in flat(PAPER)}  # of choices not taken
    assert set(dotted(written)) == set(LEAVES) - others


def test_a_file_inherits_its_base_and_is_called_as_the_file(tmp_path):
    path = tmp_path / "slow.toml"
    path.write_text('base = "non-iid"\n[plan]\ndeadline_s = 0.04\n')
    scenario = Scenario.load(path)
    changed = scenario.diff(Scenario.preset("non-iid"))
    assert changed == [("name", "slow", "non-iid"), ("plan.deadline_s", 0.04, 0.030)]


def test_paths_in_a_file_start_at_its_folder(tmp_path):
    (tmp_path / "here.toml").write_text('[network]\ntable = "fleet.csv"\n[data]\ndata_dir = "/data"\n')
    scenario = Scenario.load(tmp_path / "here.toml")
    assert scenario.network.table == str(tmp_path / "fleet.csv")
    assert scenario.data.data_dir == "/data"


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("plan.deadline_s=0.04", "plan.deadline_s", 0.04),
        ("plan.deadline_s = 1", "plan.deadline_s", 1.0),
        ("seed=3", "seed", 3),
        ("radio.bandwidth_hz=1e7", "radio.bandwidth_hz", 1e7),
        ("network.devices_per_edge=[5,4,3,2,1]", "network.devices_per_edge", [5, 4, 3, 2, 1]),
        ("plan.scheme=no-pruning", "plan.scheme", "no-pruning"),
        ('plan.scheme="no-pruning"', "plan.scheme", "no-pruning"),
        ("model.float64=true", "model.float64", True),
        ('model.prunable=["fc1", "fc2"]', "model.prunable", ["fc1", "fc2"]),
        ("data.train_samples=none", "data.train_samples", None),
        ("data.data_dir=/data/a=b", "data.data_dir", "/data/a=b"),
        ("name=two words # and more", "name", "two words # and more"),
        ("radio.fading=none", "radio.fading", "none"),
    ],
)
def test_overrides_are_toml_values_or_plain_words(override, key, value):
    changed = flat(PAPER.with_overrides([override]))
    assert changed[key] == value and type(changed[key]) is type(value)


def test_overrides_are_checked_together():
    scenario = PAPER.with_overrides(
        ["network.devices_per_edge=[5,4]", "network.num_edges=2", "rounds.edge_rounds=[1,2]"]
    )
    assert (scenario.num_devices, scenario.edge_rounds_of) == (9, [1, 2])


def test_an_override_cannot_smuggle_in_a_second_key():
    with pytest.raises(InvalidValue, match=r"Scenario\.seed must be a whole number"):
        PAPER.with_overrides(["seed=1\nname = 'x'"])


def test_a_whole_section_can_be_changed_at_once():
    by_table = PAPER.with_("plan", {"deadline_s": 0.04})
    assert by_table == PAPER.with_("plan", PlanSection(deadline_s=0.04)) == PAPER.with_("plan.deadline_s", 0.04)


def test_numpy_numbers_are_taken_as_plain_ones():
    scenario = PAPER.with_values({"seed": np.int64(3), "plan.deadline_s": np.float64(0.04)})
    assert scenario == PAPER.with_values({"seed": 3, "plan.deadline_s": 0.04})
    sizes = np.arange(1, 6)
    assert PAPER.with_("network.devices_per_edge", sizes).num_devices == 15


def test_a_scenario_cannot_be_changed_in_place():
    for owner, field in ((PAPER, "seed"), (PAPER.plan, "deadline_s")):
        with pytest.raises(Exception, match="frozen"):
            setattr(owner, field, 1)
    assert {PAPER: 1}[Scenario(name="paper")] == 1


def test_a_scenario_travels_to_other_processes():
    assert pickle.loads(pickle.dumps(PAPER)) == PAPER


def test_diff_lists_what_differs_and_nothing_else():
    other = PAPER.with_overrides(["seed=1", "plan.deadline_s=0.04"])
    assert PAPER.diff(other) == [("seed", 0, 1), ("plan.deadline_s", 0.03, 0.04)]
    assert PAPER.diff(PAPER) == []


def test_the_schema_explains_every_value():
    assert all(leaf.get("description") for leaf in LEAVES.values())
    assert json.dumps(Scenario.json_schema())


# Hash


def test_the_hash_is_the_same_in_another_process():
    code = "from airprune.scenario import Scenario; import sys; sys.stdout.write(Scenario.preset('paper').hash)"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == PAPER.hash and len(PAPER.hash) == 64


@pytest.mark.parametrize(
    "change",
    ["name=other", "engine.name=serial", "engine.workers=7", "data.data_dir=/elsewhere", "rounds.target_accuracy=0.7"],
)
def test_the_hash_ignores_what_results_do_not_depend_on(change):
    assert PAPER.with_overrides([change]).hash == PAPER.hash


class LaterTrain(TrainSection):
    fresh: float = 0.5


class LaterScenario(Scenario):
    """A scenario of a later version, with settings that today's has not."""

    novel: int = 3
    train: LaterTrain = LaterTrain()


class Bare(Objective):
    name = "yet-bare"
    summary = "the loss alone"


class Grown(Bare):
    pull: float = 0.25


@pytest.mark.parametrize("changes", [{}, {"train.momentum": 0.5, "seed": 3}, {"method": "fedprox"}], ids=str)
def test_a_new_setting_at_its_default_changes_no_hash(changes):
    today, later = Scenario().with_values(changes), LaterScenario().with_values(changes)
    assert later.to_dict() != today.to_dict() and later.hash == today.hash
    others = [later.with_values(other).hash for other in ({"novel": 4}, {"train.fresh": 0.6})]
    assert len({today.hash, *others}) == 3


def test_a_new_option_of_a_component_at_its_default_changes_no_hash(unregistered):
    register(Bare)
    before = PAPER.with_("objective.name", "yet-bare")
    register(Grown)
    after = PAPER.with_("objective.name", "yet-bare")
    assert after.objective.model_dump() != before.objective.model_dump() and after.hash == before.hash
    assert len({PAPER.hash, after.hash, after.with_("objective.yet-bare.pull", 0.5).hash}) == 3


def test_the_hash_ignores_whether_a_default_was_given():
    for name in presets():
        scenario = Scenario.preset(name)
        assert Scenario.from_text(scenario.to_toml()).hash == scenario.hash


def test_the_hash_ignores_how_a_number_is_written():
    first, *others = (PAPER.with_("network.inner_m", zero).hash for zero in (0, 0.0, -0.0))
    assert others == [first, first]


IGNORED = {"name", "method", "data.data_dir", "rounds.target_accuracy", "privacy.delta"} | {
    key for key in LEAVES if key.startswith("engine.")
}
IGNORED -= {"engine.on_device_failure"}  # what is left out of an average changes it
OTHER_VALUES = {  # where the generic change below breaks a rule or needs a file
    "network.devices_per_edge": 6,
    "data.owners": 3,
    "data.samples_per_device": 20,
    "records.devices": 5,
    "rounds.edge_rounds": 6,
    "network.cpu_hz_max": 4e9,
    "radio.noise_density_dbm_per_hz": -174.0,
    "radio.path_loss": "umi",
    "radio.shadowing_std_db": 3.0,
    "radio.rate": "nr-mcs",
    "plan.on_time": 0.9,
    "plan.scheme": "min-max",
    "plan.max_energy_j": 0.01,
    "train.kernel": "torch",
    "train.loss": "mse",
    "train.metric": "mae",
    "model.prunable": ["fc1"],
    "model.personal": ["last"],
    "topology.tree.nodes": [3],
    "topology.tree.rounds": [2],
    "topology.tree.rate_bps": [1e9, 1e9],
    "radio.station_power_dbm": 40.0,
    **{f"topology.{name}.backhaul_bps": 1e9 for name in ("hierarchical", "tree", "fog", "d2d", "tiers", "ensemble")},
    "topology.ensemble.members": 2,
    "topology.fog.cloud_bps": 1e9,
    "topology.fog.max_latency_s": 1.0,
    "topology.fog.max_workload_bytes": 1e6,
    "topology.lan.wan_bps": 1e9,
    "masking.heterofl.widths": [0.5, 1.0],
    "masking.fjord.widths": [0.5, 1.0],
    "masking.fjord-kd.widths": [0.5, 1.0],
    "masking.small-model.width": 0.5,
    "association.ina.exact_up_to": 9,
    "association.replicator.rewards": [1.0, 2.0],
    "aggregation.momentum.beta": 0.5,
    "aggregation.vote.rate": 0.01,
    "aggregation.group-vote.rate": 0.01,
    "train.local_steps": 7,
    "train.clip_gradient_norm": 1.0,
    "train.clip_gradient_value": 1.0,
    "train.warm-up.then": "cosine",
    "train.torch.kind": "NAdam",
    "data.partition": "shards",
    "network.cpu_kinds_hz": [1e9, 2e9],
    "masking.whole.frozen_bits": 8,
    **{
        f"{section}.{key}": value
        for section in ("compression", "backhaul")
        for key, value in (("top-k.count", 7), ("random-k.count", 7), ("quantised.levels", 7), ("sign.scale", 0.01))
    },
    "data.train_samples": None,
    "data.test_samples": None,
    "clock.board": "raspberry-pi-5",
    "clock.cores": 2,
    **{f"stop.{key}": 1.0 for key in ("target", "time_s", "uploaded_bits", "energy_j")},
    "stop.patience": 3,
    "aggregation.adam.start": 0.5,
    "masking.fedrolex.widths": [0.5, 1.0],
    "plan.work.half_epochs": 3.0,
    "topology.buffered.backhaul_bps": 1e9,
    "topology.k-of-n.backhaul_bps": 1e9,
    "stop.smaller_is_better": True,
    "data.feature_columns": ["a", "b"],
    "data.owner_column": "who",
    "data.target_column": "kind",
    "data.sample_shape": [1, 28, 28],
    "evaluation.metrics": ["f1"],
}


BY_CONTENT = {"network.table", "network.traces", "model.start", "data.path"}


def other_value(key, base):
    old, schema = flat(base)[key], LEAVES[key]
    if key in OTHER_VALUES:
        return OTHER_VALUES[key]
    if key in CHOICES:
        return next(name for name in CHOICES[key] if name != old)
    if key.endswith(".importance"):
        return "magnitude"
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return next(choice for choice in schema["enum"] if choice != old)
    if isinstance(old, bool):
        return not old
    if isinstance(old, str):
        return old + "-2"
    if isinstance(old, float) and schema.get("maximum") == 1:
        return old / 2 or 0.5
    if old is None:  # a number that may be missing
        return 4
    return old + 1 if isinstance(old, int) else old * 0.97 or 0.5


@each("key", sorted(set(LEAVES) - IGNORED - BY_CONTENT - {"radio.noise_figure_db", "clock.profile"}))
def test_the_hash_depends_on_every_other_value(key):
    base = PAPER.with_values(chosen_for(key))
    assert base.with_(key, other_value(key, base)).hash != base.hash


def test_a_table_counts_in_the_hash_by_its_content(tmp_path):
    first, copy = tmp_path / "a.csv", tmp_path / "b.csv"
    for path in (first, copy):
        path.write_text("device,edge,distance_m\n0,0,120\n")
    scenarios = [PAPER.with_("network.table", str(path)) for path in (first, copy)]
    assert scenarios[0].hash == scenarios[1].hash
    copy.write_text("device,edge,distance_m\n0,0,130\n")
    assert scenarios[0].hash != scenarios[1].hash
    with pytest.raises(InvalidValue, match=r"network\.table must be an existing file"):
        _ = PAPER.with_("network.table", str(tmp_path)).hash


# Network and radio


def test_a_flat_scenario_puts_all_devices_in_the_clouds_ring():
    scenario = PAPER.with_("topology.name", "flat")
    built, known = scenario.build_network(), place_flat(seed=0)
    np.testing.assert_array_equal(built.device_position_m, known.device_position_m)
    assert scenario.edge_rounds_of == [5] and scenario.num_devices == built.num_devices == 25


def test_a_disc_is_uniform_in_area():
    changes = {
        "network.placement": "disc",
        "network.inner_m": 1,
        "network.outer_m": 100,
        "network.devices_per_edge": 400,
    }
    distance = PAPER.with_values(changes).build_network().link_distance_m
    # Half of the area lies within 100/sqrt(2) m; 2,000 devices give a share within 4.5 standard deviations.
    assert np.mean(distance < 100 / np.sqrt(2)) == pytest.approx(0.5, abs=0.05)


def test_cpus_are_drawn_between_cpu_hz_and_cpu_hz_max():
    cpu_hz = Scenario.preset("hetero-cpu").build_network().cpu_hz
    assert cpu_hz.min() >= 5e8 and cpu_hz.max() <= 3e9 and len(set(cpu_hz)) == 25


def test_a_table_brings_its_own_devices(tmp_path):
    table = tmp_path / "fleet.csv"
    table.write_text("device,edge,distance_m,cpu_hz\na,1,120,1e9\nb,0,130,2e9\nc,1,140,3e9\n")
    scenario = PAPER.with_values({"network.table": str(table), "network.cpu_hz": 5e8})
    network = scenario.build_network()
    assert network.link_distance_m.tolist() == [120, 130, 140]
    assert network.cpu_hz.tolist() == [1e9, 2e9, 3e9]
    assert (scenario.num_devices, scenario.edge_rounds_of) == (3, [5, 5])
    with pytest.raises(InvalidValue, match="one entry for each of 2 edges"):
        _ = scenario.with_("rounds.edge_rounds", [1, 2, 3]).edge_rounds_of


def test_a_table_without_cpus_takes_the_scenarios_edge_by_edge(tmp_path):
    table = tmp_path / "fleet.csv"
    table.write_text("device,edge,distance_m\na,1,120\nb,0,130\nc,1,140\n")
    scenario = PAPER.with_values({"network.table": str(table), "network.cpu_hz": 5e8})
    assert scenario.build_network().cpu_hz.tolist() == [5e8] * 3
    drawn = scenario.with_("network.cpu_hz_max", 3e9).build_network().cpu_hz
    placed = place_hierarchical(num_edges=2, devices_per_edge=[1, 2], cpu_hz=(5e8, 3e9), seed=0).cpu_hz
    assert drawn[[1, 0, 2]].tolist() == placed.tolist()


def test_a_missing_table_is_named():
    with pytest.raises(BadTable, match=r"/nowhere\.csv: there is no such file"):
        PAPER.with_("network.table", "/nowhere.csv").build_network()


def test_a_noise_density_replaces_the_noise_power():
    by_density = PAPER.with_values({"radio.noise_density_dbm_per_hz": -174, "radio.noise_figure_db": 10})
    # -174 dBm/Hz + 10 dB + 10 log10(20e6) = -91 dBm
    assert by_density.build_radio().band_noise_w == pytest.approx(10 ** (-12.1), rel=3e-3)  # 73.01 taken as 73
    assert by_density.radio == RadioSection(noise_density_dbm_per_hz=-174, noise_figure_db=10)
    back = by_density.with_values({"radio.noise_power_dbm": -110, "radio.noise_figure_db": 0})
    assert back == PAPER


# What is refused, and how


EXAMPLE = "Example: deadline_s = 0.03"


@each(
    ("override", "message"),
    [
        *(
            (f"plan.deadline_s={text}", f'Scenario.plan.deadline_s must be {rule} or "auto", got {got}. {EXAMPLE}')
            for text, rule, got in (
                ("-1", "> 0", "-1"),
                ("nan", "finite and > 0", "nan"),
                ("inf", "finite and > 0", "inf"),
                ("0,04", "a number > 0", "'0,04'"),
                ("true", "a number > 0", "true"),
            )
        ),
        ("seed=1.0", "Scenario.seed must be a whole number ≥ 0, got 1.0. Example: seed = 0"),
        ("seed=true", "Scenario.seed must be a whole number ≥ 0, got true. Example: seed = 0"),
        ("model.float64=1", "Scenario.model.float64 must be true or false, got 1. Example: float64 = false"),
        (
            "train.batch_size=0",
            "Scenario.train.batch_size must be a whole number ≥ 1, got 0. Example: batch_size = 128",
        ),
        (
            "engine.workers=0",
            'Scenario.engine.workers must be a whole number ≥ 1 or "none", got 0. Example: workers = "none"',
        ),
        (
            "plan.max_pruning_ratio=1.5",
            "Scenario.plan.max_pruning_ratio must be in [0, 1], got 1.5. Example: max_pruning_ratio = 0.95",
        ),
        (
            "plan.min_pruning_ratio=0.99",
            "Scenario.plan.max_pruning_ratio must be ≥ min_pruning_ratio = 0.99, got 0.95.",
        ),
        (
            "events.straggler_slowdown=0.5",
            "Scenario.events.straggler_slowdown must be ≥ 1, got 0.5. Example: straggler_slowdown = 2.0",
        ),
        (
            "train.momentum=1",
            "Scenario.train.momentum must be ≥ 0 and < 1, got 1. Example: momentum = 0.0",
        ),
        (
            "network.devices_per_edge=[5,4]",
            "Scenario.network.devices_per_edge must have one entry for each of 5 edges, got [5, 4]. "
            "Or set num_edges to match",
        ),
        (
            "rounds.edge_rounds=[5,4]",
            "Scenario.rounds.edge_rounds must have one entry for each of 5 edges, got [5, 4]. Example: edge_rounds = 5",
        ),
        (
            "radio.noise_power_dbm=none",
            "Scenario.radio.noise_power_dbm or noise_density_dbm_per_hz must be given, and not both, got neither. "
            "Example: noise_power_dbm = -110",
        ),
        (
            "radio.noise_figure_db=3",
            "Scenario.radio.noise_figure_db must be 0 with a noise power, which includes it, got 3. "
            "Give noise_density_dbm_per_hz instead",
        ),
        ("plan.infeasible=dorp", "Scenario.plan.infeasible 'dorp' is unknown; did you mean 'drop'? known: drop, fail."),
        ("plan=3", "Scenario.plan must be a table of keys, got 3."),
        ("seed", "An override must be key=value, got 'seed'. Example: plan.deadline_s=0.04"),
    ],
)
def test_a_refusal_is_one_sentence_with_owner_rule_value_and_way_out(override, message):
    with pytest.raises((InvalidValue, UnknownName)) as caught:
        PAPER.with_overrides([override])
    assert sentence(caught.value) == message


def test_both_noises_at_once_are_refused():
    with pytest.raises(InvalidValue, match="got -110 and -174"):
        PAPER.with_overrides(["radio.noise_power_dbm=-110", "radio.noise_density_dbm_per_hz=-174"])


@pytest.mark.parametrize(
    ("key", "beginning"),
    [
        ("plan.deadlin_s", "Scenario.plan.deadlin_s is unknown; did you mean 'deadline_s'? known: scheme, weighting,"),
        ("deadline_s", "Scenario.deadline_s is unknown; did you mean 'plan.deadline_s'? known: name, method, seed,"),
        ("plans.deadline_s", "Scenario.plans.deadline_s is unknown; "),
        ("seed.x", "Scenario.seed.x is unknown; did you mean 'seed'? known:"),
        ("self", "Scenario.self is unknown; known:"),
        ("plan.self", "Scenario.plan.self is unknown; known:"),
        ("owner", "Scenario.owner is unknown; known:"),
    ],
)
def test_an_unknown_key_lists_the_known_and_the_nearest(key, beginning):
    with pytest.raises(UnknownName) as caught:
        PAPER.with_(key, 1)
    assert sentence(caught.value).startswith(beginning)


@pytest.mark.parametrize("key", ["plan.scheme", "radio.path_loss", "radio.fading", "engine.name"])
def test_names_are_checked_against_their_lists(key):
    with pytest.raises(UnknownName, match=f"Scenario.{key} 'x' is unknown; known: "):
        PAPER.with_(key, "x")


def test_datasets_are_checked_when_asked(monkeypatch):
    monkeypatch.setitem(sys.modules, "airprune.data", SimpleNamespace(DATASETS={"fashion-mnist": None}))
    PAPER.check_names()
    with pytest.raises(UnknownName, match=r"Scenario\.data\.name 'x' is unknown"):
        PAPER.with_("data.name", "x").check_names()


def test_a_section_on_its_own_refuses_in_the_same_words():
    with pytest.raises(InvalidValue, match=r'^Scenario\.plan\.deadline_s must be > 0 or "auto", got -1\.'):
        PlanSection(deadline_s=-1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[plan]\ndeadline_s = = 3\n",
            "x.toml, line 2, must be valid TOML, got other text. Invalid value, at column 14.",
        ),
        ("seed = 1\nseed = 2\n", "x.toml, line 2, must be valid TOML, got other text. Cannot overwrite a value, at "),
        ('seed = 1\nname = """', "x.toml, line 2, must be valid TOML, got other text. Unterminated string, at "),
        ('base = "papr"', "preset 'papr' is unknown; did you mean 'paper'? known: "),
        ("base = 3", "Scenario.base must be the name of a preset, got 3."),
    ],
)
def test_bad_toml_is_one_sentence_with_the_line(text, message):
    with pytest.raises(AirpruneError) as caught:
        Scenario.from_text(text, source="x.toml")
    assert sentence(caught.value).startswith(message)


@each(
    "text",
    [
        "#" * (2**20 + 1),
        "x = " + "[" * 100_000,
        "x = " + "{a=" * 100_000,
        "[plan]\ndeadline_s = " + "[" * 100 + "]" * 100,
        "a." * 500_000 + "a = 1",
        "[" + "a." * 500_000 + "a]",
        "\n".join(f"{'a.' * 200}b{i} = 1" for i in range(2_000)),
        "seed = " + "1" * 5_000,
        "seed = 0x" + "f" * 100_000,
        "[plan]\ndeadline_s = 0x" + "f" * 100_000,
        "[network]\nnum_edges = 1_000_000",
        "[network]\ndevices_per_edge = [" + "1," * 400_000 + "]",
        "plan = [1, 2]",
        "[[plan]]\ndeadline_s = 1",
        "[plan]\ndeadline_s.x = 1",
        "[plan]\nscheme = 2020-01-01",
        "[train]\nbatch_size = 07:30:00",
        "[plan]\ndeadline_s = -nan",
        '[model]\nname = "a\\u0000b"',
        'name = "' + "x" * 5_000 + '"',
        '"" = 1',
        '"a\\nb" = 1',
        '"' + "k" * 100_000 + '" = 1',
        "__init__ = 1",
        "\0",
    ],
)
def test_hostile_toml_is_refused_quickly_in_one_sentence(text):
    start = time.process_time()
    with pytest.raises(AirpruneError) as caught:
        Scenario.from_text(text)
    sentence(caught.value)
    assert time.process_time() - start < 20  # takes milliseconds; a parser without limits takes minutes


@pytest.mark.parametrize("name", ["missing.toml", "", "a\0b"])
def test_a_file_that_cannot_be_read_is_named_with_the_presets(tmp_path, name):
    with pytest.raises(InvalidValue, match=r"Scenario\.load must be .* TOML file, got .* Presets: .*smoke"):
        Scenario.load(tmp_path / name)


def test_a_file_that_is_too_large_or_not_text_is_refused(tmp_path):
    with pytest.raises(InvalidValue, match="zero is not a regular file"):
        Scenario.load("/dev/zero")
    path = tmp_path / "latin.toml"
    path.write_bytes(b"#" * 2**21)
    with pytest.raises(InvalidValue, match="at most 1,048,576 bytes"):
        Scenario.load(path)
    path.write_bytes(b'seed = 1\nname = "caf\xe9"\n')
    with pytest.raises(InvalidValue, match=r"line 2, must be UTF-8 text, got other bytes"):
        Scenario.load(path)


@settings(max_examples=100)
@given(
    st.sampled_from(sorted(LEAVES)),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=5,
    ),
)
def test_any_value_at_any_key_is_taken_or_refused_in_one_sentence(key, value):
    try:
        changed = PAPER.with_(key, value)
    except AirpruneError as error:
        sentence(error)
    else:
        assert Scenario.from_text(changed.to_toml()) == changed


# Components and methods


@pytest.mark.parametrize("key", sorted(CHOICES))
def test_a_component_that_does_not_exist_is_refused_with_the_nearest(key):
    known = next(iter(CHOICES[key]))
    with pytest.raises(UnknownName) as caught:
        PAPER.with_(key, known + "x")
    assert sentence(caught.value).startswith(f"Scenario.{key} {known + 'x'!r} is unknown; did you mean {known!r}?")


def test_options_of_a_choice_live_in_its_own_table():
    scenario = PAPER.with_values({"masking.name": "frozen", "masking.frozen.importance": "magnitude"})
    written = tomllib.loads(scenario.to_toml())["masking"]
    assert written["name"] == "frozen" and written["frozen"]["importance"] == "magnitude" and "probe" not in written
    assert scenario.masking.chosen("name").importance == "magnitude"


def test_a_choice_comes_with_its_defaults_and_the_former_one_leaves_with_its_options():
    scenario = PAPER.with_("masking.probe.importance", "magnitude").with_("masking.name", "shared")
    assert scenario.masking.chosen("name").every == 5
    assert scenario.with_("masking.name", "probe") == PAPER


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"masking.frozen.importance": "update"}, 'Scenario.masking.frozen must not be given unless name = "frozen"'),
        (
            {"masking.probe.importanc": "update"},
            "Scenario.masking.probe.importanc is unknown; did you mean 'importance'?",
        ),
        ({"masking.probe.importance": "updat"}, "Scenario.masking.probe.importance 'updat' is unknown; did you mean"),
        ({"masking.probe.count_probe": 3}, "Scenario.masking.probe.count_probe must be true or false, got 3."),
        ({"masking.probe": 3}, "Scenario.masking.probe must be a table of keys, got 3."),
        ({"masking.probes.x": 3}, "Scenario.masking.probes is unknown; did you mean 'probe'?"),
        ({"masking.name": 3}, 'Scenario.masking.name must be a name, got 3. Example: name = "probe"'),
        ({"association.fixed.x": 1}, "Scenario.association.fixed.x is unknown; known: ."),
        ({"backhaul.name": "top-k", "backhaul.top-k.share": 2.0}, "Scenario.backhaul.top-k.share must be > 0 and ≤ 1"),
        ({"method": "fedprxo"}, "Scenario.method 'fedprxo' is unknown; did you mean 'fedprox'?"),
    ],
)
def test_a_wrong_option_is_refused_in_one_sentence(changes, words):
    with pytest.raises(AirpruneError) as caught:
        PAPER.with_values(changes)
    assert sentence(caught.value).startswith(words)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("network.topology=flat", "topology.name"),
        ("rounds.edge_average=data", "aggregation.edge"),
        ("rounds.cloud_average=data", "aggregation.cloud"),
        ("pruning.importance=update", "masking.probe"),
    ],
)
def test_a_key_of_before_names_the_new_one(old, new):
    with pytest.raises(UsageError, match=new):
        PAPER.with_overrides([old])


def test_a_method_sets_its_parts_and_each_can_be_changed():
    scenario = PAPER.with_values({"method": "fedprox", "objective.prox.mu": 0.5})
    assert (scenario.method, scenario.objective.name, scenario.plan.scheme) == ("fedprox", "prox", "no-pruning")
    assert scenario.objective.chosen("name").mu == 0.5
    assert Scenario.from_text(scenario.to_toml()) == scenario


def test_another_method_takes_back_what_the_former_one_had_set():
    assert PAPER.with_("method", "fedavg").with_("method", "adaptive-pruning") == PAPER
    changed = PAPER.with_("plan.deadline_s", 0.04).with_("method", "mem-sgd").with_("method", "hierfavg")
    assert changed == PAPER.with_("plan.deadline_s", 0.04).with_("method", "hierfavg")


def test_the_hash_depends_on_what_a_method_sets_and_not_on_its_name():
    by_name = PAPER.with_("method", "frozen-pruning")
    by_parts = PAPER.with_values({"masking.name": "frozen", "aggregation.edge": "predicted"})
    assert by_name.hash == by_parts.hash != PAPER.hash


def test_thermal_noise_is_short_for_a_density_and_a_figure():
    short = Scenario().with_("radio.noise", "thermal")
    spelled = Scenario().with_values({"radio.noise_density_dbm_per_hz": -174.0, "radio.noise_figure_db": 7.0})
    assert short == spelled == Scenario.from_text('[radio]\nnoise = "thermal"')
    assert short.radio.noise_power_dbm is None and "\nnoise = " not in short.to_toml()


def test_thermal_noise_over_20_mhz_is_minus_101_dbm_before_the_noise_figure():
    # -174 dBm/Hz + 10 log10(20e6) dB = -174 + 73.0103 = -100.9897 dBm; with 7 dB, -93.9897 dBm.
    for figure_db, dbm in ((0.0, -100.9897), (7.0, -93.9897)):
        radio = Scenario().with_values({"radio": {"noise": "thermal", "noise_figure_db": figure_db}}).build_radio()
        assert 10 * np.log10(radio.band_noise_w) + 30 == pytest.approx(dbm, abs=5e-5)  # four decimals


def test_another_noise_is_refused_with_the_way_out():
    with pytest.raises(InvalidValue, match=r"Scenario\.radio\.noise must be thermal, got 'pink'.*noise_power_dbm"):
        Scenario().with_("radio.noise", "pink")
