"""The gateway's commands that hold devices to their planned shares, where these are not trusted to pace themselves.

A hierarchical token bucket (HTB) on the interface through which uploads leave towards the edge: one class per device at
its planned rate, found by the address that a packet comes from. Whatever else passes is not held back.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from airprune.errors import InvalidValue, UnknownName, UsageError
from airprune.runs.layout import RunFolder
from airprune.tables import Column, Table, read_table

# A class may send this much at once after a pause. More, and short uploads would be faster than planned; less, and a
# gateway with coarse timers would not reach the rate.
_BURST_BYTES = 16_384
# What a class may send before the next one's turn: a frame. By default it grows with the rate, and tc warns of that.
_QUANTUM_BYTES = 1514
_MOST_CLASSES = 0xFFFE
_RECORD_BYTES = 64 * 2**20

_PLAN_COLUMNS = (
    Column(name="device", kind="label", required=True, explanation="a name, unique"),
    Column(name="edge", kind="label", default="", explanation="the edge server that serves it"),
    Column(name="bandwidth_share", above=0, maximum=1, explanation="share of its edge's bandwidth"),
    Column(name="rate_bps", above=0, explanation="bit/s, headers included"),
)


def htb_commands(interface: str, rates_bps: Mapping[str, float], addresses: Mapping[str, str]) -> list[str]:
    """Returns shell commands, one per line of a script, that replace whatever shaping `interface` had.

    Args:
      rates_bps: of the link, headers included, by device.
      addresses: IPv4 or IPv6, by device.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}", interface):
        raise InvalidValue("--interface", "must be the name of a network interface", repr(interface), "Example: eth0")
    _check_names(rates_bps, addresses)
    commands = [
        f"tc qdisc del dev {interface} root 2>/dev/null || true",
        f"tc qdisc add dev {interface} root handle 1: htb",
    ]
    for number, (device, rate_bps) in enumerate(rates_bps.items(), start=1):
        packets = _packets_from(device, addresses[device])
        rate = f"{round(rate_bps)}bit"
        commands += [
            f"tc class add dev {interface} parent 1: classid 1:{number:x} htb rate {rate} ceil {rate} "
            f"burst {_BURST_BYTES}b cburst {_BURST_BYTES}b quantum {_QUANTUM_BYTES}",
            f"tc filter add dev {interface} parent 1: {packets} flowid 1:{number:x}",
        ]
    return commands


def _check_names(rates_bps: Mapping[str, float], addresses: Mapping[str, str]) -> None:
    for device in addresses:
        if device not in rates_bps:
            raise UnknownName("device", device, rates_bps)
    without = [device for device in rates_bps if device not in addresses]
    if without:
        raise UsageError(
            f"--address must be given for every device, got none for {without[0]}. Example: --address "
            f"{without[0]}=192.168.1.20"
        )
    of: dict[str, str] = {}
    for device, address in addresses.items():
        if (other := of.setdefault(address, device)) != device:
            raise UsageError(f"--address must be another for each device, got {address} for {other} and {device}.")
    if len(rates_bps) > _MOST_CLASSES:
        raise InvalidValue("plan.devices", f"must be at most {_MOST_CLASSES:,} on an interface", len(rates_bps))


def _packets_from(device: str, address: str) -> str:
    """Returns the part of a filter that selects packets."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        raise InvalidValue(
            "--address", "must be DEVICE=ADDRESS with an IP address", f"{device}={address}", "Example: d0=192.168.1.20"
        ) from None
    if parsed.version == 4:
        return f"protocol ip prio 1 u32 match ip src {parsed}/32"
    return f"protocol ipv6 prio 2 u32 match ip6 src {parsed}/128"


def planned_rates_bps(source: str, *, edge: str | None = None, capacity_bps: float | None = None) -> dict[str, float]:
    """Rates by device from a plan (`airprune plan --json` or `--out`) or from the last round of a run folder.

    Args:
      edge: only its devices.
      capacity_bps: what the whole bandwidth carries; not needed where the plan itself says `rate_bps`.
    """
    table = _last_round(Path(source)) if Path(source).is_dir() else read_table(source, _PLAN_COLUMNS)
    rates = _rates(table, capacity_bps)
    edges = [str(name) for name in table["edge"]]
    if edge is not None and edge not in edges:
        raise UnknownName("edge", edge, dict.fromkeys(edges))
    chosen = [row for row in range(table.num_rows) if edge in (None, edges[row])]
    for row in chosen:
        if not rates[row] > 0:
            raise table.error(row, f"device {table['device'][row]} has no bandwidth share; plan its edge first.")
    return {str(table["device"][row]): float(rates[row]) for row in chosen}


def _rates(table: Table, capacity_bps: float | None) -> np.ndarray:
    if "rate_bps" in table:
        return table["rate_bps"]
    if "bandwidth_share" not in table:
        raise UsageError(
            f"{table.source} must have a column bandwidth_share or rate_bps. Example: airprune plan "
            "fleet.csv --json > plan.json"
        )
    if capacity_bps is None:
        raise UsageError(
            f"{table.source} has shares but no rates; --capacity-mbps says what the whole bandwidth carries. "
            "Example: --capacity-mbps 100"
        )
    return capacity_bps * table["bandwidth_share"]


def _last_round(folder: Path) -> Table:
    """Returns the devices of a run's last edge round, named as kits name them: d0, d1, … at e0, e1, …"""
    run = RunFolder(folder)
    record = run.reader.last("edge", within_bytes=_RECORD_BYTES) if run.records_file.is_file() else None
    if record is None:
        raise UsageError(f"{folder} must be a run folder with a finished edge round. Example: runs/paper")
    names = {key: np.array([f"{key[0]}{number}" for number in record[key]], dtype=object) for key in ("device", "edge")}
    share = np.array(record["bandwidth_share"], dtype=np.float64)
    return Table(str(folder), {**names, "bandwidth_share": share}, np.zeros(len(share), dtype=np.int64))
