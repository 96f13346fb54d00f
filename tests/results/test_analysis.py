"""Studies from Python, their frames, callbacks and loggers, and what a paper takes of them."""

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import airprune as ap
from airprune import extras
from airprune.cli import main
from airprune.errors import InvalidValue, UnknownName, UsageError
from airprune.methods.registration import registries
from airprune.planning.schemes.optimal import Optimal
from airprune.results.figures.curves import PaperColumn, figure_files, new_figure, save_figure
from airprune.results.figures.styles import styles_for
from airprune.results.latex import tabular
from airprune.results.time_to_target import Evaluation, default_target
from airprune.studies.write_report import write_report
from support.tiny import blobs, tiny_scenario

TINY = {"rounds__global_rounds": 2, "engine__name": "serial"}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Three variants over two seeds, in an order that is not the alphabet's."""
    out = tmp_path_factory.mktemp("study")
    also = {"a long one": {"plan.deadline_s": 0.5}}
    return ap.compare(
        tiny_scenario(**TINY), schemes=["no-pruning", "optimal"], also=also, seeds=[0, 1], out=out, dataset=blobs()
    )


# Frames


def test_a_frame_has_a_row_per_run_and_global_round(study):
    frame = study.frame()
    assert len(frame) == 3 * 2 * 2
    assert frame["series"].drop_duplicates().tolist() == ["no-pruning", "optimal", "a-long-one"]
    assert set(frame["plan.deadline_s"]) == {0.5, study.variants[0].scenario.plan.deadline_s}
    assert frame["finished"].all() and "plan.bits_per_weight" not in frame  # the same in all runs


def test_totals_are_the_sums_of_rounds_and_those_of_the_records(study):
    run = study.frame().query("series == 'optimal' and seed == 1")
    for name in ("uploaded_bits", "energy_j", "time_s"):
        np.testing.assert_allclose(run[f"round_{name}"].cumsum(), run[f"total_{name}"], rtol=1e-12)  # one addition
        assert name not in run
    records = [json.loads(line) for line in (study.out / "optimal-seed1/records.jsonl").read_text().splitlines()]
    assert run["total_energy_j"].tolist() == [r["energy_j"] for r in records if r["kind"] == "global"]
    edges = study.frame("edge").query("series == 'optimal' and seed == 1")
    assert edges["round_energy_j"].tolist() == [r["energy_j"] for r in records if r["kind"] == "edge"]
    devices = study.frame("device").query("series == 'optimal' and seed == 1")
    assert devices["pruning_ratio"].tolist() == [v for r in records if r["kind"] == "edge" for v in r["pruning_ratio"]]


def test_a_single_run_and_several_folders_can_be_loaded(study):
    one = study.out / "optimal-seed0"
    assert ap.load_runs(one)["series"].unique().tolist() == ["optimal"]
    assert len(ap.load_runs([one, study.out / "optimal-seed1"])) == 4
    with pytest.raises(UsageError, match="at least one run"):
        ap.load_runs(study.out / "nowhere")
    with pytest.raises(UnknownName, match="global, edge, device"):
        ap.load_runs(one, level="edges")


def test_a_package_that_is_missing_is_named_by_its_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(extras.EXTRAS, "analysis", ("pandass",))
    with pytest.raises(UsageError, match=r"load_runs needs the extra `analysis`: .*\[analysis\]"):
        ap.load_runs(tmp_path)


# Studies


def test_compare_is_the_command_compare(study, tmp_path, monkeypatch, capsys, blank_pictures):
    """The same folder serves both: the command finds nothing left to run."""
    scenario = tmp_path / "tiny.toml"
    scenario.write_text((study.out / "optimal-seed0/scenario.toml").read_text())
    words = ["--schemes", "no-pruning,optimal", "--also", "a long one: plan.deadline_s=0.5", "--seeds", "0-1"]
    assert main(["compare", str(scenario), *words, "--out", str(study.out), "--json", "--engine", "serial"]) == 0
    shown = capsys.readouterr()
    assert "[1/" not in shown.err
    told = json.loads(shown.out)["optimal"]
    table = study.table().set_index("variant")
    assert told["energy_j"]["mean"] == table.loc["optimal", "total_energy_j"]
    assert told["to_target"]["target_accuracy"] == study.target == table.loc["optimal", "target_accuracy"]
    assert told["to_target"]["joules_to_target"]["half_width_95"] is not None


def test_sweep_runs_every_combination_and_continues(tmp_path):
    scenario = ap.Scenario.preset("smoke").with_values(
        {"rounds.global_rounds": 1, "data.train_samples": 100, "data.test_samples": 50, "engine.name": "serial"}
    )
    values = {"plan.scheme": ["optimal", "no-pruning"], "plan.deadline_s": [0.016, 0.02]}
    result = ap.sweep(scenario, values, out=tmp_path / "s", workers=1)
    assert [tuple(row.values.values()) for row in result.rows] == [
        ("optimal", 0.016),
        ("optimal", 0.02),
        ("no-pruning", 0.016),
        ("no-pruning", 0.02),
    ]
    assert len(result.frame()) == 4 and result.table()["plan.deadline_s"].tolist() == [0.016, 0.02] * 2
    figure = result.figure()
    assert {ax.get_xlabel() for ax in figure.axes} == {"plan.deadline_s"} and len(figure.axes) == 4
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["optimal", "no-pruning"]
    before = (tmp_path / "s/sweep.csv").stat().st_mtime_ns, result.table().to_json()
    assert ap.sweep(scenario, values, out=tmp_path / "s", workers=1).table().to_json() == before[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda s, out: ap.compare(s, out=out), "at least one variant"),
        (
            lambda s, out: ap.compare("smoke", schemes=["optimal"], out=out),
            r"Example: ap\.Scenario\.preset",
        ),
        (lambda s, out: ap.compare(s, schemes=["optimal"], seeds=[], out=out), r"compare\.seeds must be"),
        (lambda s, out: ap.sweep(s, {"plan.deadline_s": 0.02}, out=out), "must be a list of values"),
    ],
)
def test_a_wrong_study_is_refused_in_one_sentence(call, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        call(tiny_scenario(), tmp_path)


# To a target that nobody named


def evaluated(*accuracies: float) -> list[Evaluation]:
    return [
        Evaluation(global_round=q, edge_round=None, test_accuracy=a, time_s=1.0, uploaded_bits=1.0, energy_j=1.0)
        for q, a in enumerate(accuracies, start=1)
    ]


def test_the_default_target_is_what_every_run_reached():
    assert default_target([{0: evaluated(0.2, 0.617, 0.5)}, {0: evaluated(0.8), 1: evaluated(0.7)}]) == 0.61
    assert default_target([{0: evaluated(0.1)}, {0: evaluated(0.9)}]) == 0.45  # who learns nothing decides nothing
    assert default_target([{0: []}]) is None


# Callbacks


class Heard(ap.Callback):
    def __init__(self):
        self.said = []

    def begin(self, scenario, folder):
        self.said.append(("begin", scenario.seed, folder))

    def take(self, record):
        self.said.append(record["kind"])

    def end(self, *, finished):
        self.said.append(("end", finished))


def test_callbacks_hear_of_saved_records_and_of_the_end(tmp_path):
    heard, saved = Heard(), []

    def look(record):
        saved.append((tmp_path / "run/records.jsonl").read_text().count("\n"))

    for _ in ap.run(tiny_scenario(**TINY), dataset=blobs(), out=tmp_path / "run", callbacks=[heard, look]):
        pass
    assert saved == list(range(1, len(saved) + 1))
    assert heard.said[0] == ("begin", 5, tmp_path / "run") and heard.said[-1] == ("end", True)
    assert heard.said[1:-1].count("global") == 2


def test_a_run_that_is_stopped_tells_its_callbacks_and_can_be_resumed(tmp_path):
    heard = Heard()
    records = ap.run(tiny_scenario(**TINY), dataset=blobs(), out=tmp_path / "run", callbacks=[heard])
    next(records)
    records.close()
    assert heard.said == [("begin", 5, tmp_path / "run"), "edge", ("end", False)]
    again = Heard()
    list(ap.run(tiny_scenario(**TINY), dataset=blobs(), out=tmp_path / "run", resume=True, callbacks=[again]))
    assert again.said[-1] == ("end", True) and len(again.said) > 3


def test_what_is_no_callback_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(InvalidValue, match=r"run\.callbacks must be functions"):
        ap.run(tiny_scenario(), out=tmp_path / "run", callbacks=[3])
    with pytest.raises(UnknownName, match="tensorboard"):
        ap.run(tiny_scenario(), out=tmp_path / "run", callbacks=["tensorbord"])
    assert not (tmp_path / "run").exists()


# Loggers


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of TensorBoard's own reader
def test_tensorboard_has_the_numbers_of_the_frame(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    list(ap.run(tiny_scenario(**TINY), dataset=blobs(), out=out, callbacks=["tensorboard"]))
    events = EventAccumulator(str(out / "tensorboard")).Reload()
    frame, edges = ap.load_runs(out), ap.load_runs(out, level="edge")
    for name in ("test_accuracy", "total_energy_j", "latency_s"):
        assert [event.value for event in events.Scalars(name)] == pytest.approx(
            frame[name].tolist(), rel=1e-6
        )  # float32
        assert [event.step for event in events.Scalars(name)] == [1, 2]
    logged = [event.value for event in events.Scalars("edge/round_uploaded_bits")]
    assert logged == pytest.approx(edges["round_uploaded_bits"].tolist(), rel=1e-6)  # float32
    assert [event.step for event in events.Scalars("edge/train_loss")] == list(range(1, len(edges) + 1))


LOG_ELSEWHERE = """
import airprune as ap, json, sys
from pathlib import Path
scenario = ap.Scenario.preset("smoke").with_values(
    {"rounds.global_rounds": 2, "data.train_samples": 100, "data.test_samples": 50, "engine.name": "serial"})
out = Path(sys.argv[1])
records = list(ap.run(scenario, out=out, callbacks=["mlflow", "wandb"]))
from mlflow.tracking import MlflowClient
client = MlflowClient(tracking_uri=(out / "mlflow").resolve().as_uri())
(run,) = client.search_runs([client.get_experiment_by_name("airprune").experiment_id])
history = client.get_metric_history(run.info.run_id, "test_accuracy")
(offline,) = (out / "wandb").rglob("*.wandb")
print(json.dumps({
    "status": run.info.status,
    "scheme": run.data.params["plan.scheme"],
    "steps": [point.step for point in history],
    "mlflow": [point.value for point in history],
    "records": [r["test_accuracy"] for r in records if r["kind"] == "global"],
    "wandb": [name in offline.read_bytes() for name in (b"test_accuracy", b"total_energy_j", b"edge/train_loss")],
}))
"""


@pytest.mark.slow
def test_mlflow_and_wandb_log_offline(tmp_path):
    """In an environment of their own that sees this one: together they are 200 MB, and pin what others need newer."""
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    root = Path(__file__).parents[2]
    (site / "seen.pth").write_text(f"{root / 'src'}\n{sysconfig.get_path('purelib')}\n")
    subprocess.run(
        [home / "bin/pip", "install", "-q", "-c", root / "constraints.txt", "mlflow-skinny", "wandb"],
        check=True,
        capture_output=True,
    )
    (tmp_path / "log.py").write_text(LOG_ELSEWHERE)
    quiet = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "MLFLOW"))}
    done = subprocess.run(
        [home / "bin/python", tmp_path / "log.py", tmp_path / "run"], env=quiet, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["mlflow"] == told["records"] and told["steps"] == [1, 2]
    assert (told["status"], told["scheme"], told["wandb"]) == ("FINISHED", "optimal", [True, True, True])


# For papers


def test_fonts_in_pdf_are_type_42_and_svg_has_outlines(tmp_path):
    figure, (ax,) = new_figure(1)
    ax.set_xlabel("simulated time (s)")
    pictures = figure_files(tmp_path / "p.2")
    save_figure(figure, *pictures)
    assert [path.name for path in pictures] == ["p.2.png", "p.2.pdf", "p.2.svg"]
    pdf, svg = pictures[1].read_bytes(), pictures[2].read_text()
    assert b"/Type3" not in pdf and b"/Type /Font" in pdf and b"/FontFile2" in pdf
    assert "<text" not in svg and "<path" in svg
    again = figure_files(tmp_path / "again")
    save_figure(figure, *again)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in pictures]


@pytest.mark.parametrize(("paper", "inches"), [("single", 3.5), ("double", 7.16)])
def test_pictures_are_as_wide_as_a_column(study, paper, inches):
    figure = study.figure(paper=PaperColumn(paper))
    assert figure.get_size_inches()[0] == pytest.approx(inches, rel=1e-12)
    assert {ax.xaxis.label.get_fontsize() for ax in figure.axes} == {8.0}


def test_legends_and_reports_keep_the_order_asked_for(study, tmp_path, blank_pictures):
    names = [text.get_text() for text in study.figure().legends[0].get_texts()]
    assert names == ["no-pruning", "optimal", "a long one"]
    page = write_report(study.out, tmp_path / "page.html").read_text()
    assert page.index("<td>no-pruning") < page.index("<td>optimal") < page.index("<td>a-long-one")


def test_a_comparison_page_has_a_target_and_latex_though_nobody_asked(study, tmp_path, blank_pictures):
    page = write_report(study.out, tmp_path / "page.html").read_text()
    assert f"To {100 * study.target:g} % test accuracy" in page
    table = (tmp_path / "page-figures/target.tex").read_text()
    assert r"\toprule" in table and "no-pruning &" in table and "energy J" in table
    assert (tmp_path / "page-figures/summary.tex").is_file()


def test_latex_shows_names_to_the_letter():
    table = "\n".join(tabular(["a_b", "x %"], [["50 % & {c}", "1 ± 2"]], words=["a_b"]))
    assert r"a\_b & x \% \\" in table and r"50 \% \& \{c\} & 1 $\pm$ 2 \\" in table
    assert table.startswith(r"\begin{tabular}{lr}")


def test_own_schemes_stay_in_reports_where_nobody_knows_them(tmp_path, unregistered, blank_pictures):
    class Mine(Optimal):
        name = "mine"
        summary = "as optimal"

    ap.register(Mine)
    out = tmp_path / "c"
    ap.compare(tiny_scenario(**TINY), schemes=["mine", "optimal"], out=out, dataset=blobs())
    for registry in registries().values():
        for component in registry.added:
            registry.remove(component.name)
    page = write_report(out, tmp_path / "page.html").read_text()
    assert page.count("<td>mine") >= 3  # summary, costs, runs
    assert "cannot be read here: mine" in page
    assert ap.load_runs(out)["series"].unique().tolist() == ["mine", "optimal"]


def test_many_unknown_names_are_told_apart():
    styles = styles_for([f"own-{i}" for i in range(25)])
    assert len(set(styles.values())) == 25
