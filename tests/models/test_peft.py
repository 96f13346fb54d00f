"""Models of the package PEFT as they are, in an environment of its own."""

import os
import subprocess
import sys
import sysconfig
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = textwrap.dedent("""
    import copy
    import numpy as np, peft, torch, transformers
    import airprune as ap
    from airprune.models.catalogue import FlatModel

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=11, n_positions=8, n_embd=16, n_layer=2, n_head=2)
    lora = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["c_attn", "c_proj"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(transformers.GPT2LMHeadModel(config), lora)
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}

    units = FlatModel(copy.deepcopy(model)).find_units()
    assert units.sizes.tolist() == [4] * 6, units.trouble  # c_attn and two c_proj of each block

    whole = (np.random.default_rng(2).integers(11, size=(60, 1)) + np.arange(7)) % 11
    x, y = whole[:, :-1], whole[:, 1:].copy()
    y[:, -1] = -100
    few = {"network.num_edges": 2, "network.devices_per_edge": 2, "rounds.global_rounds": 4, "plan.deadline_s": 1.0}
    train = {"loss": "tokens", "optimizer": "adam", "learning_rate": 0.05, "batch_size": 5}
    values = {**few, "engine.name": "serial", **{f"train.{key}": value for key, value in train.items()}}
    for method in ("hetlora", "ffa-lora"):
        scenario = ap.Scenario.preset("smoke").with_values({"method": method, **values})
        trained = ap.train(scenario, model=model, dataset=((x, y), (x, y)))
        first, last = (trained.global_records[place]["test_perplexity"] for place in (0, -1))
        assert last < first, (method, first, last)
        assert all(np.array_equal(trained.weights[name], value.numpy()) for name, value in frozen.items())

    twin = copy.deepcopy(model)
    twin.load_state_dict({name: torch.from_numpy(array) for name, array in trained.weights.items()})
    with torch.no_grad():
        logits = twin.eval()(torch.from_numpy(x)).logits.movedim(2, 1)
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y))
    assert abs(float(loss.exp()) - last) < 1e-3 * last
    print("ranks of PEFT", peft.__version__)
""")


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> str:
    """An environment with PEFT beside the packages of this one, torch among them."""
    if known := os.environ.get("AIRPRUNE_PEFT_PYTHON"):
        return known
    place = tmp_path_factory.mktemp("peft")
    subprocess.run([sys.executable, "-m", "venv", place], check=True)
    (own,) = place.glob("lib/python*/site-packages")
    (own / "shared.pth").write_text(sysconfig.get_path("purelib"))
    pip = [place / "bin/pip", "install", "-q", "--constraint", ROOT / "constraints.txt", "peft", "transformers"]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"PEFT cannot be installed here: {done.stderr.strip()[-200:]}")
    return str(place / "bin/python")


@pytest.mark.slow
def test_a_model_of_peft_trains_as_it_is_with_its_ranks_as_units(python):
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([python, "-c", SCRIPT], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "ranks of PEFT" in done.stdout
