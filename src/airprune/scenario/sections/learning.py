"""Settings of model, data, local training, rounds and evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, ValidationInfo, field_validator

from airprune.components.choice import ChoiceSection
from airprune.data.partitions import PARTITIONS
from airprune.errors import InvalidValue, UnknownName
from airprune.methods.augmentations import AUGMENTATIONS
from airprune.methods.loops import LOOPS, MINIBATCH_STEPS
from airprune.methods.optimisers import OPTIMISERS
from airprune.methods.schedules import SCHEDULES
from airprune.models.kernels import KERNELS
from airprune.models.losses import AUTO, CROSS_ENTROPY, LOSSES, METRICS, OWN, terms_of
from airprune.settings.section import (
    Count,
    FilePath,
    Label,
    NonNegative,
    PerEdge,
    Positive,
    Ratio,
    Section,
    Text,
)


class ModelSection(Section):
    """Neural network that is trained."""

    owner = "Scenario.model"

    name: Text = Field(
        default="paper-cnn", description="architecture; paper-cnn has W_conv = 18,720 and W_fully = 25,168 weights"
    )
    prunable: tuple[Text, ...] = Field(
        default=(), description='names of layers that may be pruned; empty: every linear layer; ["*"]: convolutions too'
    )
    personal: tuple[Text, ...] = Field(
        default=(),
        description='names of layers that stay on each device, neither sent nor averaged; "last" is the last one',
    )
    float64: bool = Field(default=False, description="train in double precision (64 bit)")
    start: FilePath | None = Field(
        default=None,
        description="weights that training starts from: a safetensors file, or the folder of a finished run; none: "
        "sampled by the seed",
    )


class DataSection(Section):
    """Data set, and its partition among the devices."""

    owner = "Scenario.data"

    name: Text = Field(default="fashion-mnist", description="a data set of `airprune data list`")
    path: FilePath | None = Field(
        default=None,
        description="file or folder with samples of your own, in place of name: CSV, NPZ, LEAF, PFLlib or images; "
        "train_samples and test_samples are then the most that are used",
    )
    target_column: Text | None = Field(
        default=None,
        description="for a path to a CSV file: column with the target; none: label, labels, target, y or class",
    )
    feature_columns: tuple[Text, ...] | None = Field(
        default=None, description="for a path to a CSV file: columns with the features; none: all others"
    )
    owner_column: Text | None = Field(
        default=None,
        description="for a path to a CSV file: column that names the owner of each sample, for partition natural",
    )
    sample_shape: tuple[Count, ...] | None = Field(
        default=None, description="for a path: shape of a sample where the file has it flat; size of images in a folder"
    )
    train_samples: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=50_000, description="number of training samples; none: all"
    )
    test_samples: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=10_000, description="number of test samples; none: all"
    )
    judge_on: Literal["test", "held-out"] = Field(
        default="test",
        description="samples for evaluation; held-out: test_samples of the training samples that are not in "
        "train_samples, for tuning without the test set",
    )
    owners: Count | None = Field(
        default=None,
        description="for data sets whose samples have owners: number of owners, sampled at random, whose samples are "
        "used; none: all",
    )
    min_owner_samples: Count = Field(
        default=1,
        description="for data sets whose samples have owners: owners with fewer training samples are excluded",
    )
    partition: Text = Field(
        default="iid",
        description="partition of the training samples among devices: IID, non-IID by class, or natural: a device is "
        "one owner of samples, or several",
    )
    samples_per_device: Count | None = Field(
        default=None,
        description="none: each sample belongs to one device; a number: every device samples as many from the whole "
        "training set, so that devices may share samples; for more devices than samples",
    )
    classes_per_device: Count = Field(
        default=2, description="classes per device, for partitions shards and edge-iid; per edge, for edge-non-iid"
    )
    alpha: Positive = Field(default=0.5, description="concentration of partition dirichlet; smaller is more non-IID")
    standardize: bool = Field(
        default=True,
        description="shift and scale the samples to mean 0 and standard deviation 1; false: values in [0, 1]",
    )
    size_spread: NonNegative = Field(
        default=0.0, description="standard deviation of the logarithm of devices' numbers of samples; 0: equal numbers"
    )
    data_dir: Annotated[FilePath | None, Label()] = Field(
        default=None, description="folder that is searched first for the files; results do not depend on it"
    )

    @field_validator("partition")
    @classmethod
    def _known_partition(cls, name: str) -> str:
        if name not in PARTITIONS:
            raise PARTITIONS.unknown(name[:60], f"{cls.owner}.partition")
        return name

    @property
    def source(self) -> str:
        """Returns the name of the data set, or of the file or folder in its place."""
        return self.name if self.path is None else Path(self.path).name


# Fields of `train` that may name what a script gave to `run`, and the argument of it.
_OWN_FIELDS = {"loop": "train", "optimizer": "optimizer"}


def _is_own(name: Any) -> bool:
    return isinstance(name, str) and name.startswith(OWN)


class TrainSection(ChoiceSection):
    """Local training, Eq. (8)."""

    owner = "Scenario.train"
    choices: ClassVar = {"loop": LOOPS, "optimizer": OPTIMISERS, "schedule": SCHEDULES, "augmentation": AUGMENTATIONS}

    loop: Text = Field(
        default=MINIBATCH_STEPS,
        description="training loop of a device; your own function by --import or `run(train=…)`",
    )
    optimizer: Text = Field(
        default="sgd",
        description="local optimiser; its state starts anew on every device in each edge round; your own by "
        "--import or `run(optimizer=…)`",
    )
    learning_rate: Positive = Field(default=0.001, description="learning rate eta of Eq. (8)")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="momentum of sgd; beta_1 of adam and adamw, where 0 means 0.9"
    )
    weight_decay: NonNegative = Field(
        default=0.0, description="weight decay: L2, decoupled for adamw; pruned weights stay unchanged"
    )
    clip_gradient_norm: Positive | None = Field(
        default=None,
        description="gradients of a step that are longer are scaled to this L2 norm over all parameters; none: as they "
        "are",
    )
    clip_gradient_value: Positive | None = Field(
        default=None, description="entries of gradients are clipped to this absolute value; none: as they are"
    )
    augmentation: Text = Field(default="none", description="random changes of the samples of each minibatch")
    batch_size: Count = Field(default=128, description="samples per minibatch")
    local_epochs: Count = Field(default=2, description="local passes over a device's samples per edge round")
    local_steps: Count | None = Field(
        default=None, description="bound on the minibatch steps of a device per edge round; none: all of its epochs"
    )
    steps_decay: Literal["none", "loss"] = Field(
        default="none",
        description="loss: fewer local steps from round to round, in proportion to sqrt(F(t) / F(0) eta(0) / eta(t))",
    )
    schedule: Text = Field(default="constant", description="schedule of the learning rate")
    schedule_unit: Literal["global", "edge", "step", "local-step"] = Field(
        default="global",
        description="unit that the schedule follows: global rounds, edge rounds, step: edge rounds with a fraction for "
        "every local step, local-step: the steps of a device in each of its rounds",
    )
    step_every: Count = Field(default=1, description="for schedule step: units between two changes")
    step_factor: Positive = Field(default=0.5, description="for schedule step: factor of each change")
    kernel: Text = Field(
        default="auto",
        description="code that computes gradients; native is fast, for the paper's CNN; auto: native where it can",
    )
    loss: Text = Field(
        default=CROSS_ENTROPY,
        description="loss that is minimised, or a weighted sum, 0.7 mse + 0.3 huber; your own by --import or "
        "`run(loss=…)`",
    )
    metric: Text = Field(
        default=AUTO, description="metric of evaluations beside the loss; auto: the one that belongs to the loss"
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = Field(
        default="cpu", description="hardware for train.kernel = torch; auto: an accelerator if torch finds one"
    )
    feature_cache_mb: Annotated[float, Field(ge=0, le=1_000_000)] = Field(
        default=512.0,
        description="memory per worker, in MB, for outputs of frozen layers that later local epochs reuse; 0: none",
    )

    def steps(self, num_samples: Any) -> Any:
        """Returns the minibatch steps per edge round of devices with so many samples, before any decay."""
        whole = self.local_epochs * np.ceil(np.asarray(num_samples) / self.batch_size)
        return whole if self.local_steps is None else np.minimum(whole, self.local_steps)

    def samples_seen(self, num_samples: Any, local_steps: Any = None) -> Any:
        """Returns the sample passes per edge round of devices with so many samples; in so many steps, if given.

        Every epoch ends with a smaller minibatch if the samples do not divide.
        """
        steps = self.local_steps if local_steps is None else local_steps
        if steps is None:
            return num_samples * self.local_epochs
        per_epoch = np.ceil(np.asarray(num_samples) / self.batch_size)
        epochs = np.minimum(steps // np.maximum(per_epoch, 1), self.local_epochs)
        rest = np.where(epochs < self.local_epochs, (steps - epochs * per_epoch) * self.batch_size, 0.0)
        return num_samples * epochs + np.minimum(rest, num_samples)

    @classmethod
    def _chosen(cls, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the components that the fields name; functions of a script have no options."""
        listed = {field: name for field, name in fields.items() if field not in _OWN_FIELDS or not _is_own(name)}
        return super()._chosen(listed)

    def chosen(self, field: str) -> Any:
        """Returns the component that `field` names; what a script gave to `run` has to be given again."""
        if field in _OWN_FIELDS and _is_own(name := getattr(self, field)):
            rule = "names a function of the script that started the run"
            way_out = f"Give it again: airprune.run(…, {_OWN_FIELDS[field]}=…)."
            raise InvalidValue(f"{self.owner}.{field}", rule, repr(name), way_out)
        return super().chosen(field)

    @field_validator("loss", "metric")
    @classmethod
    def _known_function(cls, name: str, info: ValidationInfo) -> str:
        known = LOSSES if info.field_name == "loss" else (AUTO, *METRICS)
        names = terms_of(name) if info.field_name == "loss" else {name: 1.0}
        for one in names:
            if one not in known and not one.startswith(OWN):
                raise UnknownName(f"{cls.owner}.{info.field_name}", one[:60], known)
        if info.field_name == "metric" and name in METRICS and METRICS[name].is_vector:
            rule, way_out = "must be one number", f'Example: evaluation.metrics = ["{name}"]'
            raise InvalidValue(f"{cls.owner}.metric", rule, f"{name!r}, one for each class", way_out)
        return name

    @field_validator("kernel")
    @classmethod
    def _known_kernel(cls, name: str) -> str:
        if name != "auto" and name not in KERNELS:
            raise UnknownName(f"{cls.owner}.kernel", name[:60], ("auto", *KERNELS))
        return name


class RoundsSection(Section):
    """Numbers of edge and global rounds, Eqs. (12) and (13)."""

    owner = "Scenario.rounds"

    global_rounds: Count = Field(default=10, description="number Q of global rounds, i.e. cloud aggregations")
    edge_rounds: PerEdge = Field(
        default=5, description="number E of edge rounds per global round: one number, or a list with one entry per edge"
    )
    evaluate_every: Literal["global", "edge", "never"] = Field(
        default="global", description="rounds after which the global model is evaluated"
    )
    target_accuracy: Annotated[Ratio | None, Label()] = Field(
        default=None, description="report time, bits and energy until this test accuracy; it changes no result"
    )


class EvaluationSection(Section):
    """Further metrics of evaluations, and evaluation by device."""

    owner = "Scenario.evaluation"

    metrics: tuple[Text, ...] = Field(
        default=(),
        description="further metrics on the test samples, recorded as test_ and their names, numbers or lists: f1 "
        "(mean over classes), class-f1, class-accuracy, accuracy, mae; your own by --import or `run(metric=[…])`",
    )
    devices: bool = Field(
        default=False,
        description="after each global round, the metric on every device's own test samples: by device, by edge, and "
        "its mean, standard deviation, worst tenth and Jain's index over devices",
    )

    @field_validator("metrics")
    @classmethod
    def _known_metrics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in METRICS and not name.startswith(OWN):
                raise UnknownName(f"{cls.owner}.metrics", name[:60], METRICS)
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidValue(f"{cls.owner}.metrics", "must name each metric once", f"{twice!r} twice")
        return names


class StopSection(Section):
    """Early stopping: the run ends, with its model, after the global round in which one of these is met."""

    owner = "Scenario.stop"

    metric: Text = Field(
        default="test_accuracy", description="recorded metric that target, patience and keep_best look at"
    )
    smaller_is_better: bool | None = Field(
        default=None, description="direction of the metric; none: smaller is better for metrics named …loss, …error"
    )
    target: float | None = Field(default=None, description="value of the metric that ends the run")
    patience: Count | None = Field(
        default=None, description="number of global rounds without an improvement of the metric that ends the run"
    )
    min_improvement: NonNegative = Field(default=0.0, description="change of the metric that counts as an improvement")
    time_s: Positive | None = Field(default=None, description="simulated time that ends the run")
    uploaded_bits: Positive | None = Field(default=None, description="uplink bits since the start that end the run")
    energy_j: Positive | None = Field(default=None, description="energy of all devices that ends the run")
    keep_best: bool = Field(
        default=False, description="keep the best model by the metric as best.safetensors, beside the last one"
    )

    @property
    def watches_metric(self) -> bool:
        """True if the metric must be evaluated in every global round."""
        return self.target is not None or self.patience is not None or self.keep_best

    @property
    def direction(self) -> float:
        """1 if a larger metric is better, −1 if a smaller one is."""
        smaller = self.smaller_is_better
        if smaller is None:
            smaller = self.metric.endswith(("loss", "error"))
        return -1.0 if smaller else 1.0
