"""The loss in a causal language model: the same loss and gradients, no logits, and a way back."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from lossbench.kernels.flce.v2.hugging_face import use_in_causal_lm
from lossbench.kernels.flce.v2.module import LossOptions

pytestmark = pytest.mark.slow
transformers = pytest.importorskip("transformers", reason="pip install transformers")

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 101,
}
MODELS = {
    "Llama": {},
    "Gemma2": {"head_dim": 16, "final_logit_softcapping": 0.5},
    "Cohere": {"logit_scale": 0.25},
    "Granite": {"logits_scaling": 8.0},
    "Qwen2": {"tie_word_embeddings": True},
}


def model_of(name: str) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SIZES, **MODELS[name])
    return getattr(transformers, f"{name}ForCausalLM")(config)


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    tokens = torch.randint(0, 101, (2, 9))
    labels = tokens.clone()
    labels[0, :3] = -100
    return tokens, labels


def loss_and_gradients(model: Any, **extra: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    tokens, labels = batch()
    model.zero_grad()
    output = model(tokens, labels=labels, **extra)
    output.loss.backward()
    return output, {name: p.grad.clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("items", [None, 7, torch.tensor(11)])
@pytest.mark.parametrize("name", MODELS)
def test_loss_and_gradients_are_those_of_the_model(name: str, items: Any) -> None:
    model = model_of(name)
    extra = {} if items is None else {"num_items_in_batch": items}
    plain, want = loss_and_gradients(model, **extra)
    use_in_causal_lm(model)
    fused, got = loss_and_gradients(model, **extra)
    torch.testing.assert_close(fused.loss, plain.loss, rtol=1e-5, atol=1e-6)
    assert fused.logits is None
    for parameter in want:
        torch.testing.assert_close(got[parameter], want[parameter], rtol=1e-4, atol=1e-6)


def test_without_labels_nothing_changes_and_undo_restores_the_model() -> None:
    model, (tokens, labels) = model_of("Llama"), batch()
    undo = use_in_causal_lm(model)
    assert model(tokens).logits.shape == (2, 9, 101)
    undo()
    assert model(tokens, labels=labels).logits is not None


def test_model_that_computes_another_loss_is_refused() -> None:
    model = model_of("Llama")
    head = model.lm_head.forward
    model.lm_head.forward = lambda hidden: 3.0 * head(hidden)
    with pytest.raises(ValueError, match="computes another loss"):
        use_in_causal_lm(model)
    assert model(*batch()[:1]).logits is not None


def test_model_without_a_linear_head_is_refused() -> None:
    model = model_of("Llama")
    model.lm_head = torch.nn.Sequential(model.lm_head)
    with pytest.raises(ValueError, match="linear head"):
        use_in_causal_lm(model)


def test_options_reach_the_loss() -> None:
    model, (tokens, labels) = model_of("Llama"), batch()
    logits = model(tokens).logits[:, :-1].flatten(0, 1)
    use_in_causal_lm(model, LossOptions(label_smoothing=0.2), check=False)
    want = torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), label_smoothing=0.2)
    torch.testing.assert_close(model(tokens, labels=labels).loss, want)
