"""What a Flower app costs on our network beside its clients' own code, and beside Flower's own simulation.

    python benchmarks/flower_apps.py [APP] [--clients 25 --rounds 10 --weights 44000]

Needs an environment with Flower; for the comparison with its simulation also Ray (`flwr[simulation]`). Both run the
same files, one after the other, each in processes of its own: wall time, CPU time and peak memory (PSS) of all of them.
Without APP, one in numpy is made whose clients do next to nothing with a model of so many weights.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path
from typing import Any

MARK = "AIRPRUNE_BENCHMARK"
FILES = {
    "pyproject.toml": """
        [project]
        name = "idle"
        [tool.flwr.app.components]
        serverapp = "idle.server_app:app"
        clientapp = "idle.client_app:app"
        [tool.flwr.app.config]
        num-server-rounds = 10
        weights = 44000
        """,
    "idle/__init__.py": "",
    "idle/client_app.py": """
        from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
        from flwr.clientapp import ClientApp
        app = ClientApp()
        @app.train()
        def train(message, context):
            (model,) = message.content["arrays"].to_numpy_ndarrays()
            content = {"arrays": ArrayRecord([model + 1]), "metrics": MetricRecord({"num-examples": 1})}
            return Message(RecordDict(content), reply_to=message)
        """,
    "idle/server_app.py": """
        import numpy as np
        from flwr.app import ArrayRecord
        from flwr.serverapp import ServerApp
        from flwr.serverapp.strategy import FedAvg
        app = ServerApp()
        @app.main()
        def main(grid, context):
            start = ArrayRecord([np.zeros(context.run_config["weights"], dtype=np.float32)])
            strategy = FedAvg(fraction_evaluate=0.0)
            strategy.start(grid, start, num_rounds=context.run_config["num-server-rounds"])
        """,
}


def ours(app: str, clients: int, config: dict[str, Any], out: str) -> None:
    """Runs the app on our network, and prints CPU time per call beside the clients' own."""
    import airprune as ap
    from airprune.flower.client import ClientWorker

    calls: list[float] = []
    began = [0.0]
    call = ClientWorker.call

    def noted(self: Any, shared: Any, task: Any) -> Any:
        if not calls:
            began[0] = time.process_time()
        answer = call(self, shared, task)
        calls.append(answer.cpu_s)
        return answer

    ClientWorker.call = noted  # type: ignore[method-assign]
    scenario = ap.flower.default_scenario().with_("engine.name", "serial")
    ap.flower.run(app, scenario, devices=clients, run_config=config, out=out or None)
    beside_s = time.process_time() - began[0] - sum(calls)
    print(
        json.dumps(
            {"calls": len(calls), "own_ms": 1e3 * sum(calls) / len(calls), "beside_ms": 1e3 * beside_s / len(calls)}
        )
    )


def flowers(app: str, clients: int, config: dict[str, Any], out: str) -> None:
    """Runs the app in Flower's own simulation, with Ray, a client on each core."""
    os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from airprune.flower.app import FlowerApp, load

    found = FlowerApp.read(app).with_config(config)
    sys.path.insert(0, app)
    server, client = load(found.server, found.folder, "ServerApp"), load(found.client, found.folder, "ClientApp")
    assert isinstance(server, ServerApp) and isinstance(client, ClientApp)
    main = server._main  # the simulation has no run config: the server gets it here, clients of the idle app need none

    def with_config(grid: Any, context: Any) -> None:
        context.run_config = dict(found.config)
        main(grid, context)

    server._main = with_config
    run_simulation(server, client, num_supernodes=clients, backend_config={"client_resources": {"num_cpus": 1}})


def measured(kind: str, arguments: list[str]) -> dict[str, float]:
    """Runs this file as one of the two; returns wall time, CPU time and peak memory of all of its processes."""
    mark = uuid.uuid4().hex
    started = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, __file__, "--as", kind, *arguments],
        env=os.environ | {MARK: mark},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    peak, cpu_s = 0.0, dict[str, float]()
    while child.poll() is None:
        memory = 0.0
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and _is_marked(process, mark):
                memory += _pss_bytes(process)
                cpu_s[process.name] = _cpu_s(process)
        peak = max(peak, memory)
        time.sleep(0.2)
    output = child.stdout.read() if child.stdout else ""
    if child.returncode:
        sys.exit(f"{kind} failed with status {child.returncode}")
    found = json.loads(output.splitlines()[-1]) if kind == "ours" else {}
    return {"wall_s": time.monotonic() - started, "cpu_s": sum(cpu_s.values()), "memory_mb": peak / 1e6, **found}


def _is_marked(process: Path, mark: str) -> bool:
    try:
        return f"{MARK}={mark}".encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def _pss_bytes(process: Path) -> float:
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
        return 1024.0 * next(float(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0.0


def _cpu_s(process: Path) -> float:
    try:
        fields = (process / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("app", nargs="?")
    parser.add_argument("--clients", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--weights", type=int, default=44_000)
    parser.add_argument("--folder", action="store_true", help="with a run folder, so that the run can be resumed")
    parser.add_argument("--without-ray", action="store_true")
    parser.add_argument("--as", dest="kind", choices=["ours", "flowers"])
    parser.add_argument("--config", default="")
    parser.add_argument("--out", default="")
    given = parser.parse_args()
    if given.kind:
        {"ours": ours, "flowers": flowers}[given.kind](given.app, given.clients, json.loads(given.config), given.out)
        return
    with tempfile.TemporaryDirectory() as folder:
        config: dict[str, Any] = {"num-server-rounds": given.rounds}
        app = given.app
        if app is None:
            app, config = folder, config | {"weights": given.weights}
            for name, text in FILES.items():
                file = Path(folder) / name
                file.parent.mkdir(exist_ok=True)
                file.write_text(textwrap.dedent(text))
        words = [app, "--clients", str(given.clients), "--config", json.dumps(config)]
        found = {"ours": measured("ours", [*words, *(["--out", f"{folder}/run"] if given.folder else [])])}
        if not given.without_ray:
            found["flowers"] = measured("flowers", words)
    for kind, row in found.items():
        print(kind, "  ".join(f"{name} {value:.4g}" for name, value in row.items()))


if __name__ == "__main__":
    main()
