"""The usual augmentations of images: mirror images, shifts by a few pixels, noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from pydantic import Field

from airprune.errors import InvalidValue
from airprune.methods.augmentations.base import Augmentation
from airprune.settings.section import NonNegative

if TYPE_CHECKING:
    import torch


class Images(Augmentation):
    """Each sample by itself: mirrored with probability 1/2, shifted by up to `shift` pixels, with noise."""

    name = "images"
    summary = "mirror images, shifts by a few pixels (crops of the padded image), noise"
    source = "He et al. 2016, section 4.2"
    fully_open: ClassVar = {}

    flip: bool = Field(default=False, description="mirror every second image, at random, left to right")
    shift: Annotated[int, Field(ge=0, le=64)] = Field(
        default=0, description="largest shift in pixels, up, down, left and right; the border is filled with shift_fill"
    )
    shift_fill: float = Field(
        default=0.0, description="value of the pixels that a shift brings in; 0: the mean, if standardised"
    )
    noise: NonNegative = Field(default=0.0, description="standard deviation of Gaussian noise added to every value")

    def apply(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        import torch

        if (self.flip or self.shift) and x.dim() != 4:
            rule, way_out = "must be off for samples that are not images", "Noise alone works for any samples"
            key = "flip" if self.flip else "shift"
            raise InvalidValue(f"{self.owner}.{key}", rule, f"samples of shape {tuple(x.shape[1:])}", way_out)
        if self.flip:
            mirrored = torch.from_numpy(rng.random(len(x)) < 0.5).to(x.device)
            x = torch.where(mirrored[:, None, None, None], x.flip(3), x)
        if self.shift:
            x = self._shifted(x, rng)
        if self.noise:
            normal = rng.standard_normal(tuple(x.shape), dtype=np.float32)
            x = x + self.noise * torch.from_numpy(normal).to(x)
        return x

    def _shifted(self, x: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
        """A crop of the padded image, at an offset of its own for each sample."""
        import torch

        count, _, height, width = x.shape
        padded = torch.nn.functional.pad(x, (self.shift,) * 4, value=self.shift_fill)
        offset = torch.from_numpy(rng.integers(0, 2 * self.shift + 1, size=(2, count))).to(x.device)
        rows = offset[0][:, None] + torch.arange(height, device=x.device)
        columns = offset[1][:, None] + torch.arange(width, device=x.device)
        sample = torch.arange(count, device=x.device)[:, None, None]
        picked = padded.permute(0, 2, 3, 1)[sample, rows[:, :, None], columns[:, None, :]]
        return picked.permute(0, 3, 1, 2)
