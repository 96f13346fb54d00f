"""Positions over time from SUMO's floating car data (FCD), and traces of positions by a radio's path loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from airprune.checks import FloatArray, quantity
from airprune.errors import InvalidValue
from airprune.text import printable
from airprune.wireless.channel import Radio, path_loss_db

Array = np.ndarray


def read_fcd(path: Path | str) -> tuple[FloatArray, Array, FloatArray, FloatArray]:
    """Returns (time_s, names, x_m, y_m) of every vehicle and person at every time of `sumo --fcd-output FILE`."""
    shown, rows, time_s = printable(str(path)), [], 0.0
    try:
        for event, element in ElementTree.iterparse(path, events=("start", "end")):
            if element.tag == "timestep":
                if event == "start":
                    time_s = float(element.get("time", "nan"))
                else:
                    element.clear()  # a long simulation has gigabytes
            elif element.tag in ("vehicle", "person") and event == "end":
                rows.append(
                    (time_s, element.get("id", ""), float(element.get("x", "nan")), float(element.get("y", "nan")))
                )
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise InvalidValue("read_fcd.path", "must be SUMO's FCD output", f"{shown} ({error})") from None
    if not rows:
        raise InvalidValue("read_fcd.path", "must have vehicles or persons with their times", shown)
    time, name, x, y = (np.array(column) for column in zip(*rows, strict=True))
    return time, name, x, y


def traces_of_positions(
    time_s: FloatArray,
    device: Sequence[Any],
    position_m: FloatArray,
    stations: Mapping[Any, Sequence[float]],
    radio: Radio,
) -> dict[str, Array]:
    """Returns columns for `network.traces`: the median path loss of every device to every station at every time.

    Args:
      device: name or number of each row's device.
      position_m: [num_rows, 2]
      stations: name or number → (x, y) in metres.
    """
    position = quantity("traces_of_positions.position_m", position_m)
    parts = [
        (time_s, device, [name] * len(position), -path_loss_db(np.hypot(*(position - np.asarray(place)).T), radio))
        for name, place in stations.items()
    ]
    names = ("time", "device", "station", "gain_db")
    return {name: np.concatenate([np.asarray(part[n]) for part in parts]) for n, name in enumerate(names)}
