"""The trained model, its text, and runs that stop and go on."""

from __future__ import annotations

import gzip
import math
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lossbench.kernels.catalogue import build
from lossbench.kernels.protocol import LossFunction
from lossbench.kernels.training import run as run_module
from lossbench.kernels.training.model import Decoder, RMSNorm, Rotary, make_model
from lossbench.kernels.training.record import RunRecord, StepRecord, TrainingSettings
from lossbench.kernels.training.run import Arm, TrainingRun, learning_rate
from lossbench.kernels.training.sizes import SIZES, Shape
from lossbench.kernels.training.text import (
    BadText,
    Corpus,
    batch_of,
    documents,
    library_paths,
    load_corpus,
    tokenise,
    validation_batches,
)

SMALL = Shape(layers=1, hidden=32, heads=2, mlp=48)
SETTINGS = TrainingSettings(steps=8, batch=2, sequence=16, validation_tokens=64)
NAIVE = Arm("torch-naive", build("torch-naive", None, {}))


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return load_corpus(SETTINGS)


@pytest.fixture(autouse=True)
def small_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The preset 1m is smaller here: these tests are not about its speed."""
    monkeypatch.setattr(run_module, "make_model", _small)


def _small(size: str, vocab: int, sequence: int, tied: bool, seed: int) -> Decoder:
    torch.manual_seed(seed)
    model = Decoder(SMALL, vocab, sequence, tied)
    if model.untied_head is not None:
        torch.nn.init.normal_(model.untied_head, std=0.02)
    return model


def trained(
    arm: Arm, corpus: Corpus, settings: TrainingSettings = SETTINGS
) -> tuple[TrainingRun, list[StepRecord]]:
    run = TrainingRun(settings, corpus, arm, 3, "cpu")
    return run, run.advance(settings.steps)


@pytest.mark.parametrize("tied", [True, False])
def test_model_shapes_and_number_of_parameters(tied: bool) -> None:
    model = make_model("1m", 256, 16, tied, 0)
    hidden = model(torch.zeros((2, 16), dtype=torch.int64))
    assert hidden.shape == (32, SIZES["1m"].hidden)
    assert model.head.shape == (256, SIZES["1m"].hidden)
    assert (model.head is model.embedding.weight) == tied
    count = sum(parameter.numel() for parameter in model.parameters())
    assert count == SIZES["1m"].parameters(256, tied)


@pytest.mark.parametrize(
    ("size", "vocab", "tied", "millions"),
    [("1m", 256, True, 1), ("10m", 256, True, 10), ("370m", 32_768, False, 370)],
)
def test_sizes_are_what_they_are_called(size: str, vocab: int, tied: bool, millions: float) -> None:
    assert SIZES[size].parameters(vocab, tied) == pytest.approx(millions * 1e6, rel=0.1)


def test_heads_divide_the_hidden_size_into_even_parts() -> None:
    assert all(s.hidden == s.heads * s.head_size and s.head_size % 2 == 0 for s in SIZES.values())


def test_same_seed_gives_same_bits_and_another_seed_others() -> None:
    first, again, other = (make_model("1m", 512, 8, False, seed) for seed in (1, 1, 2))
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)
    )
    assert not torch.equal(first.head, other.head)


def test_later_tokens_do_not_change_earlier_states() -> None:
    model = make_model("1m", 256, 12, True, 0)
    ids = torch.arange(12)[None]
    changed = ids.clone()
    changed[0, 7:] = 99
    difference = (model(ids) - model(changed)).abs().amax(dim=-1)
    assert bool((difference[:7] < 1e-6).all())
    assert bool((difference[7:] > 1e-6).all())


def test_norm_is_the_float64_formula() -> None:
    x = torch.randn(5, 16, dtype=torch.float32)
    norm = RMSNorm(16)
    torch.nn.init.normal_(norm.weight)
    wide = x.double()
    right = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight.double()
    assert torch.allclose(norm(x).double(), right, atol=1e-6)


def test_rotary_products_depend_on_the_distance_only() -> None:
    rotary = Rotary(8, 32)
    query, key = torch.randn(8), torch.randn(8)
    turned_q = rotary(query.expand(1, 1, 32, 8))[0, 0]
    turned_k = rotary(key.expand(1, 1, 32, 8))[0, 0]
    products = turned_q @ turned_k.t()
    for distance in (0, 3, 9):
        diagonal = products.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[0].expand_as(diagonal), atol=1e-4)
    assert torch.equal(turned_q[0], query)


def test_bytes_are_ids_and_words_hash_into_the_vocabulary() -> None:
    assert tokenise(b"To\n", 256).tolist() == [84, 111, 10]
    words = tokenise(b"to be, or not to be\n", 1000)
    # to| be|,| or| not| to| be|newline: the blank before a word is part of it
    assert len(words) == 8
    assert words[1] == words[6]
    assert words[0] != words[5]
    assert int(words.max()) < 1000
    assert tokenise(b"", 256).shape == tokenise(b"", 1000).shape == (0,)


def test_words_cover_every_byte() -> None:
    text = bytes(range(256)) + b" two  blanks\ttab_and 3.5 \xc3\xa9t\xc3\xa9"
    from lossbench.kernels.training.text import _WORD

    assert b"".join(_WORD.findall(text)).replace(b" ", b"") == text.replace(b" ", b"")


def test_validation_is_the_last_tenth_of_each_file(tmp_path: Path) -> None:
    for name, letter in (("a.txt", b"a"), ("b.txt.gz", b"b")):
        body = letter * 180 + letter.upper() * 20
        (tmp_path / name).write_bytes(gzip.compress(body) if name.endswith("gz") else body)
    texts = (str(tmp_path / "a.txt"), str(tmp_path / "b.txt.gz"))
    corpus = load_corpus(replace(SETTINGS, text=texts))
    assert bytes(corpus.training.tolist()) == b"a" * 180 + b"b" * 180
    assert bytes(corpus.validation.tolist()) == b"A" * 20 + b"B" * 20
    assert (corpus.files, corpus.size_bytes) == (2, 400)


def test_texts_of_their_names() -> None:
    (shakespeare,) = documents(["shakespeare"])
    assert len(shakespeare) == 1_115_393
    names = [path.as_posix() for path in library_paths(Path(os.__file__).parent)]
    assert len(names) > 500
    assert names == sorted(names)
    assert "os.py" in names
    assert not [name for name in names if "site-packages" in name or "__pycache__" in name]


@pytest.mark.parametrize("body", [b"short", None, b"\x1f\x8b broken"])
def test_text_that_cannot_be_used_is_one_line(tmp_path: Path, body: bytes | None) -> None:
    path = tmp_path / "text.gz"
    if body is not None:
        path.write_bytes(gzip.compress(body) if body == b"short" else body)
    with pytest.raises(BadText) as caught:
        load_corpus(replace(SETTINGS, text=(str(path),)))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_batches_depend_on_seed_and_step_alone(corpus: Corpus) -> None:
    inputs, target = batch_of(corpus.training, SETTINGS, 1, 5)
    assert inputs.shape == (2, 16)
    assert torch.equal(inputs[:, 1:], target.view(2, 16)[:, :-1])
    torch.manual_seed(99)
    assert torch.equal(inputs, batch_of(corpus.training, SETTINGS, 1, 5)[0])
    assert not torch.equal(inputs, batch_of(corpus.training, SETTINGS, 1, 6)[0])
    assert not torch.equal(inputs, batch_of(corpus.training, SETTINGS, 2, 5)[0])


def test_validation_windows_lie_side_by_side(corpus: Corpus) -> None:
    batches = validation_batches(corpus.validation, SETTINGS)
    assert sum(target.numel() for _, target in batches) == SETTINGS.validation_tokens
    assert torch.equal(torch.cat([i.reshape(-1) for i, _ in batches]), corpus.validation[:64])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("size", "2m"), ("steps", 0), ("batch", 0), ("sequence", 1), ("threads", 0),
        ("vocab", 255), ("vocab", 511), ("vocab", 1 << 21), ("dtype", "float16"),
        ("cast", "both"), ("learning_rate", math.nan), ("learning_rate", 0.0),
        ("text", ()), ("checkpoint_every", 0), ("validation_tokens", 0),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_named(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{field}="):
        replace(SETTINGS, **{field: value})


def test_records_survive_json() -> None:
    assert TrainingSettings.from_json(SETTINGS.as_json()) == SETTINGS
    step = StepRecord(3, math.nan, math.inf, 2, 5.0, 1.0)
    again = StepRecord.from_json(step.as_json())
    assert math.isnan(again.loss)
    assert again.step_ms == 5.0


def test_learning_rate_rises_and_falls_to_a_tenth() -> None:
    settings = replace(SETTINGS, steps=100)
    rates = [learning_rate(settings, step) for step in range(1, 101)]
    assert rates[9] == max(rates) == settings.learning_rate
    assert rates[0] == pytest.approx(settings.learning_rate / 10)
    assert rates[-1] == pytest.approx(settings.learning_rate / 10)


def recorded(seen: list[tuple[Tensor, Tensor]], loss: LossFunction) -> LossFunction:
    def call(input: Tensor, weight: Tensor, target: Tensor, *rest: Any, **options: Any) -> Tensor:
        seen.append((target.clone(), weight.detach().clone()))
        return loss(input, weight, target, *rest, **options)

    return call


def test_contenders_of_a_seed_see_the_same_data_and_begin_alike(corpus: Corpus) -> None:
    seen: dict[str, list[tuple[Tensor, Tensor]]] = {"torch-naive": [], "flce": []}
    for name, calls in seen.items():
        version = "1" if name == "flce" else None
        trained(Arm(name, recorded(calls, build(name, version, {}))), corpus)
    pairs = list(zip(*seen.values(), strict=True))
    assert len(pairs) == SETTINGS.steps
    assert all(torch.equal(a[0], b[0]) for a, b in pairs)
    assert torch.equal(pairs[0][0][1], pairs[0][1][1])


@pytest.mark.parametrize("tied", [True, False])
def test_gradient_of_the_cut_graph_is_that_of_the_whole(corpus: Corpus, tied: bool) -> None:
    settings = replace(SETTINGS, steps=1, tied=tied)
    run, (step,) = trained(NAIVE, corpus, settings)
    model = _small("", 256, settings.sequence, tied, 3)
    inputs, target = batch_of(corpus.training, settings, 3, 1)
    loss = F.cross_entropy(model(inputs) @ model.head.t(), target)
    loss.backward()
    whole = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert step.loss == pytest.approx(loss.item(), rel=1e-6)
    assert step.gradient_norm == pytest.approx(whole.item(), rel=1e-5)
    assert run.ended


def test_reordered_rows_change_rounding_only(corpus: Corpus) -> None:
    _, plain = trained(NAIVE, corpus)
    _, reordered = trained(replace(NAIVE, reordered=True), corpus)
    losses = [each.loss for each in plain], [each.loss for each in reordered]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert [e.gradient_norm for e in plain] != [e.gradient_norm for e in reordered]


def test_share_of_the_loss_is_its_part_of_the_step(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clock that ticks at every mark: start, loss, loss done, step done."""
    ticks = iter(float(10**6 + tick) for tick in range(1000))
    monkeypatch.setattr(run_module.time, "perf_counter", lambda: next(ticks))
    run, steps = trained(NAIVE, corpus)
    assert {(each.step_ms, each.loss_ms) for each in steps} == {(3000.0, 1000.0)}
    record = run.finish(steps)
    assert record.loss_share == pytest.approx(1 / 3)
    assert record.tokens_per_s == pytest.approx(32 / 3)


@pytest.mark.parametrize("cast", ["outside", "inside"])
def test_bf16_is_cast_where_the_settings_say(corpus: Corpus, cast: str) -> None:
    kinds = []

    def loss(input: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        kinds.append((input.dtype, weight.dtype, torch.is_autocast_enabled("cpu")))
        return NAIVE.loss(input, weight, target)

    settings = replace(SETTINGS, dtype="bfloat16", cast=cast, steps=2)
    run, steps = trained(Arm("x", loss), corpus, settings)
    given = torch.bfloat16 if cast == "outside" else torch.float32
    assert kinds == [(given, given, True)] * 2
    assert run.model.head.dtype is torch.float32
    assert all(math.isfinite(each.loss) for each in steps)


def test_resumed_run_has_the_same_bits(corpus: Corpus, tmp_path: Path) -> None:
    whole, steps = trained(NAIVE, corpus)
    first = TrainingRun(SETTINGS, corpus, NAIVE, 3, "cpu")
    before = first.advance(5)
    first.save(tmp_path / "checkpoint.pt")
    second = TrainingRun(SETTINGS, corpus, NAIVE, 3, "cpu")
    second.load(tmp_path / "checkpoint.pt")
    after = second.advance(SETTINGS.steps)
    assert [bits(each) for each in before + after] == [bits(each) for each in steps]
    states = zip(whole.model.state_dict().values(), second.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in states)
    assert whole.validation_loss() == second.validation_loss()


def test_resuming_without_the_optimiser_would_be_seen(corpus: Corpus, tmp_path: Path) -> None:
    _, steps = trained(NAIVE, corpus)
    first = TrainingRun(SETTINGS, corpus, NAIVE, 3, "cpu")
    first.advance(5)
    second = TrainingRun(SETTINGS, corpus, NAIVE, 3, "cpu")
    second.model.load_state_dict(first.model.state_dict())
    second.step = 5
    after = second.advance(SETTINGS.steps)
    assert [bits(each) for each in after] != [bits(each) for each in steps[5:]]


def bits(step: StepRecord) -> tuple[Any, ...]:
    """A step without its times."""
    return step.step, step.loss, step.gradient_norm, step.nonfinite


def test_loss_that_is_no_number_ends_the_run(corpus: Corpus) -> None:
    calls = []

    def loss(input: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        calls.append(1)
        return NAIVE.loss(input, weight, target) * (math.nan if len(calls) == 4 else 1.0)

    run, steps = trained(Arm("x", loss), corpus)
    record = run.finish(steps)
    assert (run.ended, record.outcome, record.steps, len(steps)) == (True, "diverged", 4, 4)
    assert steps[-1].nonfinite > 0
    assert record.nonfinite_steps == 1
    assert record.validation_loss is record.perplexity is None
    assert RunRecord.from_json(record.as_json()).as_json() == record.as_json()


def test_training_learns_and_validates(corpus: Corpus) -> None:
    settings = replace(SETTINGS, steps=60, learning_rate=1e-2)
    run, steps = trained(NAIVE, corpus, settings)
    record = run.finish(steps)
    assert record.outcome == "ok"
    assert record.validation_loss is not None
    assert record.validation_loss < steps[0].loss - 1
    assert record.perplexity == pytest.approx(math.exp(record.validation_loss))
    assert record.parameters == sum(p.numel() for p in run.model.parameters())
    assert record.peak_bytes is record.workspace_bytes is None
    assert set(asdict(record)) == set(record.as_json())
