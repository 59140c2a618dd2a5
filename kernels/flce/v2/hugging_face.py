"""Put the loss into a causal language model of Hugging Face transformers, and take it out again.

With labels the model then never makes its logits: `logits` of the output is None. Without labels,
as in generation, nothing changes. Checked against transformers 5.24.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from .module import LinearCrossEntropyLoss, LossOptions

CHECK_TOKENS = 8
CHECK_TOLERANCE = {4: 1e-5, 2: 5e-3}
"""Of the loss, relative, by bytes of an element: the two ways round logits differently."""


class FusedLoss:
    """A model's loss from its hidden states and its head."""

    def __init__(self, model: Any, options: LossOptions) -> None:
        head, config = model.get_output_embeddings(), model.config
        if not isinstance(head, torch.nn.Linear) or model.get_decoder() is model:
            raise ValueError(
                f"{type(model).__name__}: must be a causal language model with a linear head"
            )
        if getattr(config, "output_router_logits", False):
            raise ValueError("output_router_logits=True: the router's loss would be left out")
        scale = getattr(model, "logit_scale", None)
        if scaling := getattr(config, "logits_scaling", None):
            scale = 1.0 / scaling
        softcap = getattr(config, "final_logit_softcapping", None)
        self._options = replace(
            options,
            softcap=options.softcap if softcap is None else softcap,
            logit_scale=options.logit_scale if scale is None else float(scale),
        )
        self._model = model

    def __call__(
        self, hidden: Tensor, labels: Tensor, items: Tensor | int | None, shifted: Tensor | None
    ) -> Tensor:
        """Loss of hidden states (B, T, H) and labels (B, T): token t predicts label t + 1.

        `shifted`: labels that are moved already. `items`: what the sum is divided by in place of
        the number of valid labels, as a trainer that accumulates gradients asks for.
        """
        if shifted is None:
            shifted = torch.nn.functional.pad(labels, (0, 1), value=self._options.ignore_index)
            shifted = shifted[..., 1:]
        head = self._model.get_output_embeddings()
        reduction = self._options.reduction if items is None else "sum"
        loss_function = LinearCrossEntropyLoss(replace(self._options, reduction=reduction))
        loss: Tensor = loss_function(hidden, head.weight, shifted.to(hidden.device), head.bias)
        if items is None:
            return loss
        return loss / (items.to(loss.device) if isinstance(items, Tensor) else items)


def use_in_causal_lm(
    model: Any, options: LossOptions = LossOptions(), check: bool = True
) -> Callable[[], None]:
    """Let `model(input_ids, labels=labels)` make its loss without logits; returns what undoes it.

    Soft-capping and logit scales are read from the model's configuration. `check`: compare the new
    loss with the old one on eight random tokens first. Raises: ValueError for a model that has no
    plain linear head, or whose loss is another.
    """
    from transformers.modeling_outputs import CausalLMOutputWithPast

    loss_of, original = FusedLoss(model, options), model.forward

    @functools.wraps(original)
    def forward(*args: Any, labels: Tensor | None = None, **keywords: Any) -> Any:
        if labels is None:
            return original(*args, **keywords)
        items = keywords.pop("num_items_in_batch", None)
        shifted = keywords.pop("shift_labels", None)
        as_tuple = keywords.pop("return_dict", None) is False
        keywords.pop("logits_to_keep", None)
        outputs = model.get_decoder()(*args, **keywords)
        found = CausalLMOutputWithPast(
            loss=loss_of(outputs.last_hidden_state, labels, items, shifted),
            hidden_states=getattr(outputs, "hidden_states", None),
            attentions=getattr(outputs, "attentions", None),
        )
        return found.to_tuple() if as_tuple else found

    if check:
        _compare(model, original, forward)
    model.forward = forward

    def undo() -> None:
        if model.forward is forward:
            del model.forward

    return undo


def _compare(model: Any, original: Callable[..., Any], fused: Callable[..., Any]) -> None:
    device = model.get_output_embeddings().weight.device
    tokens = torch.randint(0, model.config.vocab_size, (1, CHECK_TOKENS), device=device)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            want, got = (float(call(tokens, labels=tokens).loss) for call in (original, fused))
    finally:
        model.train(training)
    width = min(4, model.get_output_embeddings().weight.dtype.itemsize)
    if not abs(got - want) <= CHECK_TOLERANCE[width] * abs(want):
        raise ValueError(
            f"{type(model).__name__} computes another loss: {want:.6g} there, {got:.6g} from its "
            "hidden states and its head"
        )
