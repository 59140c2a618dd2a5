"""Text to token ids, the split for validation, and which tokens a step sees.

Two vocabularies. `vocab` 256: one token a byte. Any other V: the text is cut into words (letters
and digits with the blank before them, single other signs), and a word's id is the CRC-32 of its
bytes modulo V. So every V can be had from any text without training a vocabulary, and the loss has
the cost of that V. Ids cannot be turned back into text, words may share an id, and most ids of a
large V never occur: a perplexity means something only beside one of the same text and V.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import sysconfig
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import torch
from torch import Tensor

from .record import BYTES, SHAKESPEARE, STDLIB, TrainingSettings

VALIDATION_SHARE = 0.1
_WORD = re.compile(rb" ?[A-Za-z0-9_\x80-\xff]+|\s|[^\s]")
_LEFT_OUT = {"site-packages", "dist-packages", "__pycache__"}
_SEED_STRIDE = 1_000_003


class BadText(ValueError):  # noqa: N818
    """A text that cannot be read or is too short; the message is one line."""


@dataclass(frozen=True)
class Corpus:
    """Token ids of the text, int64 on the CPU, one dimension each.

    `sha256` is of all bytes read, file after file; `files` and `size_bytes` say how much that was.
    """

    training: Tensor
    validation: Tensor
    sha256: str
    files: int
    size_bytes: int


def documents(names: Sequence[str]) -> list[bytes]:
    """Texts by name: `shakespeare`, `stdlib`, or the path of a file (.gz is unpacked).

    `stdlib` is every .py file of this Python's standard library, by path. Raises: BadText.
    """
    found: list[bytes] = []
    for name in names:
        if name == SHAKESPEARE:
            packed = files(__package__).joinpath("tiny_shakespeare.txt.gz").read_bytes()
            found.append(gzip.decompress(packed))
        elif name == STDLIB:
            root = Path(sysconfig.get_paths()["stdlib"])
            found += [(root / path).read_bytes() for path in library_paths(root)]
        else:
            found.append(_file(Path(name).expanduser()))
    return found


def library_paths(root: Path) -> list[Path]:
    """Sources of the standard library below `root`, in the order of their names."""
    paths = (path.relative_to(root) for path in root.rglob("*.py"))
    return sorted(
        (path for path in paths if not _LEFT_OUT & set(path.parts)),
        key=lambda path: path.as_posix(),
    )


def _file(path: Path) -> bytes:
    try:
        body = path.read_bytes()
        return gzip.decompress(body) if path.suffix == ".gz" else body
    except (OSError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise BadText(
            f"text {str(path)!r}: {why}; give a file, {SHAKESPEARE!r} or {STDLIB!r}"
        ) from error


def tokenise(text: bytes, vocab: int) -> Tensor:
    """Ids in [0, vocab), int64; see the module's docstring for what they stand for."""
    if vocab == BYTES:
        return torch.frombuffer(bytearray(text), dtype=torch.uint8).long() if text else _nothing()
    known: dict[bytes, int] = {}
    ids = []
    for word in _WORD.findall(text):
        if word not in known:
            known[word] = zlib.crc32(word) % vocab
        ids.append(known[word])
    return torch.tensor(ids, dtype=torch.int64)


def _nothing() -> Tensor:
    return torch.empty(0, dtype=torch.int64)


def load_corpus(settings: TrainingSettings) -> Corpus:
    """Tokens of the settings' text; the last tenth of every file is kept for validation.

    Raises: BadText where the text cannot be read, or is too short for one sequence of each part.
    """
    texts = documents(settings.text)
    training, validation = [], []
    for text in texts:
        ids = tokenise(text, settings.vocab)
        cut = len(ids) - int(len(ids) * VALIDATION_SHARE)
        training.append(ids[:cut])
        validation.append(ids[cut:])
    corpus = Corpus(
        torch.cat(training),
        torch.cat(validation),
        hashlib.sha256(b"".join(texts)).hexdigest(),
        len(texts),
        sum(map(len, texts)),
    )
    shortest = min(len(corpus.training), len(corpus.validation))
    if shortest <= settings.sequence:
        raise BadText(
            f"text {', '.join(settings.text)}: {len(corpus.training)} tokens to train on and "
            f"{len(corpus.validation)} to validate; each must be more than the sequence of "
            f"{settings.sequence}"
        )
    return corpus


def batch_of(
    ids: Tensor, settings: TrainingSettings, seed: int, step: int
) -> tuple[Tensor, Tensor]:
    """Inputs (batch, sequence) and targets (batch * sequence,) of a step.

    A pure function of seed and step: every contender sees the same, and so does a resumed run.
    """
    generator = torch.Generator().manual_seed(seed * _SEED_STRIDE + step)
    last = len(ids) - settings.sequence
    starts = torch.randint(last, (settings.batch,), generator=generator)
    return _windows(ids, starts, settings.sequence)


def validation_batches(ids: Tensor, settings: TrainingSettings) -> list[tuple[Tensor, Tensor]]:
    """Windows side by side from the start of the validation part, the same for every run."""
    most = max(1, settings.validation_tokens // settings.sequence)
    starts = torch.arange(0, len(ids) - settings.sequence, settings.sequence)[:most]
    parts = [starts[at : at + settings.batch] for at in range(0, len(starts), settings.batch)]
    return [_windows(ids, part, settings.sequence) for part in parts]


def _windows(ids: Tensor, starts: Tensor, sequence: int) -> tuple[Tensor, Tensor]:
    places = starts[:, None] + torch.arange(sequence + 1)
    windows = ids[places]
    return windows[:, :-1].contiguous(), windows[:, 1:].reshape(-1)
