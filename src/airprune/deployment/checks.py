"""Checks messages of children against their orders and what can be: members have certificates, and may still lie."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import numpy as np

from airprune.components.component import Owner
from airprune.deployment.bounds import (
    LEAST_SECONDS_PER_SAMPLE,
    MOST_LINK_BPS,
    MOST_SECONDS,
    MOST_SECONDS_PER_SAMPLE,
    MOST_STATISTIC,
    most_loss,
    most_samples,
)
from airprune.deployment.packing import ReportArrays, Station
from airprune.deployment.protocol import airprune_pb2 as pb
from airprune.deployment.run_definition import RunDefinition, state_digest
from airprune.errors import WorkFailed
from airprune.rounds.sums import name_in_sums
from airprune.runs.measured import FATES
from airprune.text import plain, shown

Array = np.ndarray
MAX_SAMPLES = 2**31
# Of the trained parts that a device reports times of.
MAX_PARTS = 64
# Of delivered models.
MAX_VERSION = 2**31
# Of words that a device chooses, so that all of an edge's fit into one message.
MAX_WORDS = 300
# Of a kernel or a machine.
MAX_NAME = 64
# Of sentences about others that a node keeps.
MAX_TROUBLES = 64
_DIGEST = re.compile(r"[0-9a-f]{32}")
_TIMES = ("arrived_s", "compute_s", "uplink_s", "started_s")
_MAY_BE_UNKNOWN = ("gradient_sq_max", "gradient_noise_sq", "smoothness")


def note_trouble(troubles: dict[str, str], name: str, words: str) -> None:
    """Keeps why a peer is missing, in place of what was known of it; of many peers the latest."""
    troubles.pop(name, None)
    troubles[name] = plain(words, MAX_WORDS)
    while len(troubles) > MAX_TROUBLES:
        del troubles[next(iter(troubles))]


def trouble_in_measured(said: pb.Measured | pb.Presence.Device, *, least_samples: int = 1) -> str:
    """Returns why the measurements that a device reports cannot be; empty if they can."""
    if not least_samples <= said.num_samples <= MAX_SAMPLES:
        return f"num_samples must be between {least_samples} and {MAX_SAMPLES:,}, got {said.num_samples:,}."
    if len(said.parts) > MAX_PARTS:
        return f"parts must be at most {MAX_PARTS}, got {len(said.parts):,}."
    seconds, most = said.seconds_per_sample, MOST_SECONDS_PER_SAMPLE
    if seconds != 0.0 and not LEAST_SECONDS_PER_SAMPLE <= seconds <= most:  # 0: not measured
        return f"seconds_per_sample must be between {LEAST_SECONDS_PER_SAMPLE:g} and {most:g}, got {seconds:g}."
    times = [(f"parts.{name}", getattr(part, name)) for part in said.parts for name in ("seconds", "cached_seconds")]
    return next(filter(None, (_trouble_in_time(*time, most=most) for time in times)), "")


def trouble_in_presence(presence: pb.Presence, num_devices: int) -> str:
    """Returns why the devices that an edge reports cannot be; empty if they can."""
    numbers = [device.device for device in presence.devices]
    if len({*numbers}) != len(numbers) or max(numbers, default=-1) >= num_devices:
        return f"Presence.devices must be different ones below {num_devices}, got {shown(numbers)}."
    for device in presence.devices:
        # A device that has just joined has not said yet what it has.
        if trouble := trouble_in_measured(device, least_samples=0) or _trouble_in_link(device):
            return f"Device {device.device}: {trouble}"
    return ""


def trouble_in_held(held: pb.ModelHeld) -> str:
    """Returns why a node cannot hold the model that it reports; empty if it can."""
    most = MAX_VERSION
    return "" if held.version <= most else f"ModelHeld.version must be at most {most:,}, got {held.version:,}."


def _trouble_in_link(said: pb.Presence.Device) -> str:
    if not math.isnan(said.uplink_bps) and not 0.0 <= said.uplink_bps <= MOST_LINK_BPS:  # NaN: not measured
        return f"uplink_bps must be between 0 and {MOST_LINK_BPS:g}, got {said.uplink_bps:g}."
    return "" if math.isnan(said.rtt_s) else _trouble_in_time("rtt_s", said.rtt_s)


def trouble_in_upload(upload: pb.Upload) -> str:
    """Returns what is wrong with the fields beside the update itself; empty if nothing is."""
    return _trouble_in_time("compute_s", upload.compute_s)


def check_orders(orders: pb.Orders, work: RunDefinition, num_samples: int) -> None:
    """Raises WorkFailed if orders cannot be those of a run, e.g. have a device train for days: edges may lie, too."""
    train = work.scenario.train
    epochs = getattr(work.method.scheme, "most_epochs", None) or 0
    most = max(int(train.steps(num_samples)), epochs * -(-num_samples // train.batch_size))
    rules = {
        "local_steps": (orders.local_steps <= most, f"at most {most:,}", f"{orders.local_steps:,}"),
        "learning_rate": (
            math.isfinite(orders.learning_rate) and orders.learning_rate >= 0.0,
            "finite and not negative",
            f"{orders.learning_rate:g}",
        ),
        "keep": (orders.keep <= work.shape.num_state, f"at most {work.shape.num_state:,}", f"{orders.keep:,}"),
    }
    for name, (fits, rule, got) in rules.items():
        if not fits:
            raise WorkFailed(f"Orders.{name} must be {rule} in this run, got {got}.")


def checked_report(
    report: pb.EdgeReport, payload: bytes, order: pb.EdgeRound, work: RunDefinition, num_samples: Mapping[int, int]
) -> ReportArrays:
    """Returns an edge's report; raises WorkFailed with a sentence if it cannot be of the round that was ordered.

    Args:
      num_samples: of the devices, as they report them.
    """
    devices = [orders.device for orders in order.orders]
    _must("round_index", report.round_index == order.round_index, order.round_index, report.round_index)
    said = [outcome.device for outcome in report.outcomes]
    _must("outcomes", said == devices, f"of devices {shown(devices)}", shown(said))
    _must("model_digest", _DIGEST.fullmatch(report.model_digest), "32 hex digits", shown(report.model_digest))
    _must_be_time("took_s", report.took_s)
    for outcome, orders in zip(report.outcomes, order.orders, strict=True):
        _check_outcome(outcome, orders)
    asked = {probe.device for probe in order.probes}
    for probed in report.probed:
        fits = probed.device in asked and not (probed.uplink_bps < 0 or probed.uplink_bps > MOST_LINK_BPS)
        rule = f"rates of devices {shown(sorted(asked))} up to {MOST_LINK_BPS:g}"
        _must("probed", fits, rule, f"{probed.uplink_bps:g} of {probed.device}")
    counted = [outcome.device for outcome in report.outcomes if outcome.fate == "ok"]
    arrays = ReportArrays.from_bytes(payload, work.shape)
    _check_sums(arrays, counted, work)
    _check_statistics(arrays, order, work, num_samples)
    said_model = "the edge's model" if arrays.station is not None else "no model"
    _must("payload", (arrays.station is not None) == order.sends_model, "with the model as ordered", said_model)
    if arrays.station is not None:
        _check_station(arrays.station, report.model_digest, work)
    return arrays


def _check_outcome(outcome: pb.Outcome, orders: pb.DeviceOrders) -> None:
    _must("fate", outcome.fate in FATES, f"one of {', '.join(FATES)}", shown(outcome.fate))
    for name in _TIMES:
        _must_be_time(name, getattr(outcome, name))
    if outcome.fate == "ok":  # what was refused may have been too long
        _must("bytes", outcome.bytes <= orders.max_bytes, f"at most {orders.max_bytes:,}, as ordered", outcome.bytes)
    _must("bytes", outcome.bytes < 2**40, "below 2^40", outcome.bytes)
    _must("exchange_bytes", outcome.exchange_bytes < 2**40, "below 2^40", outcome.exchange_bytes)
    if not math.isnan(outcome.rtt_s):
        _must_be_time("rtt_s", outcome.rtt_s)
    outcome.reason = plain(outcome.reason, MAX_WORDS)
    has_none = not outcome.digest and outcome.fate != "ok"
    _must("digest", has_none or _DIGEST.fullmatch(outcome.digest), "32 hex digits", shown(outcome.digest))


def _check_sums(arrays: ReportArrays, counted: list[int], work: RunDefinition) -> None:
    statistics = arrays.statistics
    said = statistics.device.tolist()
    _must("statistics", said == counted, f"of the devices that counted, {shown(counted)}", shown(said))
    for name, column in vars(statistics).items():
        is_sound = not np.isinf(column).any() if name in _MAY_BE_UNKNOWN else np.isfinite(column).all()
        _must(f"statistics.{name}", is_sound, "finite", "others")
    _must("verdict", set(arrays.suspected) <= set(counted), "on devices that counted", shown(list(arrays.suspected)))
    kept_by = arrays.kept_by
    _must("kept_by", kept_by.dtype.kind == "i", "whole numbers", kept_by.dtype)
    most = int(kept_by.max(initial=0))
    _must("kept_by", kept_by.min(initial=0) >= 0 and most <= len(counted), f"between 0 and {len(counted)}", most)
    shapes = None
    if work.reports is not None:
        shapes = {name_in_sums(name, n): shape for name, (_, shape) in work.reports.items() for n in counted}
    for name, array in arrays.reports.items():
        fits = shapes is None or shapes.get(name) == array.shape
        fits &= array.dtype.kind != "f" or bool(np.all(np.abs(array) <= MOST_STATISTIC * max(len(counted), 1)))
        rule = f"as the method declares, finite and at most {MOST_STATISTIC:g} per device"
        _must("reports", fits and _is_finite(array), rule, f"{shown(name)} {array.shape}")


def _check_statistics(
    arrays: ReportArrays, order: pb.EdgeRound, work: RunDefinition, num_samples: Mapping[int, int]
) -> None:
    """Compares the statistics of devices with what they were ordered to do."""
    statistics, codec = arrays.statistics, work.codec
    orders = {one.device: one for one in order.orders}
    loss_limit = most_loss(work.scenario, work.num_classes)
    for place, device in enumerate(statistics.device.tolist()):
        own = orders[device]
        part = own.first_trained, own.last_trained if own.HasField("last_trained") else None
        weights = min(work.shape.fixed_weights + own.keep, work.shape.weights_above(*part))
        code = own.code if own.HasField("code") else None
        steps = own.local_steps if own.HasField("local_steps") else None
        most = {
            "uploaded_weights": weights,
            "sent_bits": float(codec.compression.message_bits(codec.coded(code), weights)),
            "num_samples": most_samples(work.scenario.train, num_samples[device], steps),
            "loss": loss_limit,
        }
        for name, column in vars(statistics).items():
            limit, value = most.get(name, MOST_STATISTIC), float(column[place])
            fits = name == "device" or math.isnan(value) or abs(value) <= limit * (1.0 + 1e-12)
            _must(f"statistics.{name}", fits, f"at most {limit:,.6g}", f"{value:g} of device {device}")


def _check_station(station: Station, digest: str, work: RunDefinition) -> None:
    wanted: Mapping[str, Array] = {name: slot.row(work.shape) for name, slot in work.slots(Owner.EDGE).items()}
    _must("slots", station.slots.keys() == wanted.keys(), shown(sorted(wanted)), shown(sorted(station.slots)))
    for name, array in station.slots.items():
        fits = (array.shape, array.dtype) == (wanted[name].shape, wanted[name].dtype)
        _must(f"slots.{name}", fits and _is_finite(array), "of its shape, and finite", f"{array.dtype} {array.shape}")
    model = station.model
    fits = model.dtype == work.codec.state_dtype and _is_finite(model)
    _must("model", fits, f"finite numbers of {work.codec.state_dtype}", f"others, of {model.dtype}")
    is_same = state_digest(model, station.slots) == digest
    _must("model_digest", is_same, "that of the model it sends", digest)


def _trouble_in_time(name: str, value: float, *, most: float = MOST_SECONDS) -> str:
    if not math.isfinite(value) or value < 0:
        return f"{name} must be finite and not negative, got {value:g}."
    return "" if value <= most else f"{name} must be at most {most:g}, got {value:g}."


def _must_be_time(name: str, value: float) -> None:
    if trouble := _trouble_in_time(name, value):
        raise WorkFailed(f"Report.{trouble}")


def _must(field: str, fits: object, rule: object, got: object) -> None:
    if not fits:
        raise WorkFailed(f"Report.{field} must be {rule}, got {got}.")


def _is_finite(array: Array) -> bool:
    return bool(np.isfinite(array).all()) if array.dtype.kind == "f" else array.dtype.kind in "biu"
