"""Uploads over real links against the model T_up = RTT + 1.047 · 8 · bytes / R, in network namespaces; needs root.

    .venv/bin/python benchmarks/links.py [--uploads 10]

The real links of a deployment between two processes, mutual TLS, warm, 10–80 Mbit/s, 200 kB–1 MB:

    unpaced    as fast as a link allows that a token bucket shapes
    at rate    on the same link, by a sender that paces at the link's own rate
    at 0.9     by a sender that paces at 0.9 of it, as plans with the margin ask for
    at half    by a sender that paces at half of it, as with a share of 0.5
    gateway    a fast link, held to the rate by the gateway's HTB classes (`airprune deploy shape`)
    far        unpaced, with a round trip of 20 ms

Tells measured / predicted, and for probes estimated / true rate. And what a pause of a second costs a far connection,
by congestion control.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from airprune.deployment.estimates import PROBE_BYTES, PROBES, probed_uplink_bps
from airprune.deployment.pacing import upload_s
from airprune.deployment.shaping import htb_commands

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.link_uploads import Timed, uploading
from support.namespaces import Link, Network, can_make_namespaces, network

RATES_MBPS = (10, 20, 40, 80)
SIZES_BYTES = (200_000, 500_000, 1_000_000)
FAR_S = 0.01
CONTROL = Path("/proc/sys/net/ipv4/tcp_congestion_control")
ALLOWED = CONTROL.with_name("tcp_allowed_congestion_control")  # in namespaces

Upload = Callable[..., Timed]


def links() -> dict[str, Link]:
    shaped = {f"near{mbps}": Link(mbps=mbps) for mbps in RATES_MBPS}
    free = {f"free{mbps}": Link() for mbps in RATES_MBPS}
    far = {f"far{mbps}": Link(mbps=mbps, delay_s=FAR_S) for mbps in RATES_MBPS}
    return {"edge": Link(), **shaped, **free, **far}


def hold_on_gateway(net: Network) -> None:
    shares = {f"free{mbps}": 1e6 * mbps for mbps in RATES_MBPS}
    script = "\n".join(htb_commands(net.port("edge"), shares, {name: net.address(name) for name in shares}))
    subprocess.run(net.on_bridge("sh", "-e", "-c", script), check=True, timeout=20)


def ratios(upload: Upload, mbps: float, num_bytes: int, num_uploads: int, paced_share: float | None) -> np.ndarray:
    pace_bps = None if paced_share is None else paced_share * 1e6 * mbps
    timed = [upload(num_bytes, pace_bps) for _ in range(num_uploads)]
    return np.array([one.seconds / upload_s(num_bytes, pace_bps or 1e6 * mbps, one.rtt_s) for one in timed])


def probes(upload: Upload, mbps: float, num_probes: int) -> np.ndarray:
    """Medians of three in a row, as devices send them."""
    timed = [upload(PROBE_BYTES, count=PROBES) for _ in range(num_probes)]
    rates = [[probed_uplink_bps(PROBE_BYTES, *span) for span in one.spans_s] for one in timed]
    return np.nanmedian(rates, axis=1) / (1e6 * mbps)


def measured(net: Network, folder: Path, num_uploads: int) -> Iterator[tuple[str, float, str, np.ndarray]]:
    variants = {
        "near": {"unpaced": None, "at rate": 1.0, "at 0.9": 0.9, "at half": 0.5},
        "free": {"gateway": None},
        "far": {"far": None},
    }
    for mbps in RATES_MBPS:
        for node, ways in variants.items():
            with uploading(net, f"{node}{mbps}", "edge", folder) as upload:
                for way, paced_share in ways.items():
                    for num_bytes in SIZES_BYTES:
                        found = ratios(upload, mbps, num_bytes, num_uploads, paced_share)
                        yield way, mbps, f"{num_bytes // 1000} kB", found
                yield f"probe {node}", mbps, f"{PROBE_BYTES // 1024} KiB", probes(upload, mbps, num_uploads)


def after_idling(net: Network, folder: Path, num_uploads: int) -> Iterator[tuple[str, float]]:
    """Median seconds of 200 kB over far 40 Mbit/s, a second after the last one."""

    def one_after_a_pause(upload: Upload) -> float:
        time.sleep(1.0)
        return upload(SIZES_BYTES[0]).seconds

    before = CONTROL.read_text().strip()
    for control in ALLOWED.read_text().split():
        control_in(net, "far40", control)
        with uploading(net, "far40", "edge", folder) as upload:
            yield control, float(np.median([one_after_a_pause(upload) for _ in range(num_uploads)]))
    control_in(net, "far40", before)


def control_in(net: Network, node: str, control: str) -> None:
    """Of the connections that a node opens from now on."""
    subprocess.run(net.inside(node, "sh", "-c", f"echo {control} > {CONTROL}"), check=True, timeout=20)


def row(way: str, mbps: str, size: str, found: np.ndarray) -> str:
    least, low, median, high, most = np.nanpercentile(found, (0, 10, 50, 90, 100))
    return f"{way:<11} {mbps:>6} {size:>8}   {median:.3f}   {low:.3f}–{high:.3f}   {least:.3f}–{most:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--uploads", type=int, default=10, help="of each kind")
    num_uploads = parser.parse_args().uploads
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))  # not without removing the network
    if not can_make_namespaces():
        sys.exit("needs root and network namespaces")
    print(f"{num_uploads} uploads of each kind; congestion control {CONTROL.read_text().strip()}")
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores at the start")
    print(f"{'':<11} {'Mbit/s':>6} {'size':>8}   median  p10–p90       smallest–largest")
    together: dict[str, list[np.ndarray]] = {}
    with network(links()) as net, tempfile.TemporaryDirectory() as folder:
        hold_on_gateway(net)
        idled = dict(after_idling(net, Path(folder), num_uploads))
        for way, mbps, size, found in measured(net, Path(folder), num_uploads):
            together.setdefault(way, []).append(found)
            print(row(way, f"{mbps:g}", size, found), flush=True)
    for way, parts in together.items():
        print(row(way, "all", "all", np.concatenate(parts)))
    print(f"200 kB a second later, 40 Mbit/s, 20 ms: model {1e3 * upload_s(SIZES_BYTES[0], 40e6, 2 * FAR_S):.0f} ms")
    for control, seconds in idled.items():
        print(f"  {control}: {1e3 * seconds:.0f} ms")
    print(f"load {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
