"""A small decoder-only language model: RMSNorm, rotary positions, SwiGLU, tied or untied head.

    h = embedding[ids];  per layer: h += attention(norm(h)), h += mlp(norm(h));  out = norm(h)

It ends before the head: `hidden` (N, H) and the head's weight (V, H) are what a contender takes.
Sources: RMSNorm 1910.07467, rotary positions 2104.09864, SwiGLU 2002.05202 (arXiv).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .sizes import Shape, shape_of

EPSILON = 1e-6
ROTARY_BASE = 10_000.0
INIT_DEVIATION = 0.02


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in float32 whatever autocast says; x (..., H)."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Same shape and dtype as x."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + EPSILON)
        return (wide * scale * self.weight).to(x.dtype)


class Rotary(nn.Module):
    """Turns pairs of features by an angle that grows with the position."""

    def __init__(self, head_size: int, sequence: int) -> None:
        super().__init__()
        exponents = torch.arange(0, head_size, 2, dtype=torch.float64) / head_size
        positions = torch.arange(sequence, dtype=torch.float64)
        angles = positions[:, None] * ROTARY_BASE**-exponents
        self.cosine: Tensor
        self.sine: Tensor
        self.register_buffer("cosine", angles.cos().float(), persistent=False)
        self.register_buffer("sine", angles.sin().float(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, heads, T, head_size) with T at most the model's sequence."""
        length = x.shape[-2]
        cosine, sine = self.cosine[:length], self.sine[:length]
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.cat((first * cosine - second * sine, first * sine + second * cosine), dim=-1)
        return turned.to(x.dtype)


class Attention(nn.Module):
    """Causal self-attention over (batch, T, H)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.query_key_value = nn.Linear(shape.hidden, 3 * shape.hidden, bias=False)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def forward(self, x: Tensor, rotary: Rotary) -> Tensor:
        """Same shape as x."""
        batch, length, hidden = x.shape
        split: Tensor = self.query_key_value(x)
        split = split.view(batch, length, 3, self.shape.heads, self.shape.head_size)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotary(query), rotary(key), value, is_causal=True)
        result: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, hidden))
        return result


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.up = nn.Linear(shape.hidden, shape.mlp, bias=False)
        self.down = nn.Linear(shape.mlp, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Same shape as x."""
        result: Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return result


class Layer(nn.Module):
    """One block with a norm before each half."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = RMSNorm(shape.hidden), RMSNorm(shape.hidden)
        self.attention, self.mlp = Attention(shape), SwiGLU(shape)

    def forward(self, x: Tensor, rotary: Rotary) -> Tensor:
        """Same shape as x."""
        x = x + self.attention(self.attention_norm(x), rotary)
        result: Tensor = x + self.mlp(self.mlp_norm(x))
        return result


class Decoder(nn.Module):
    """The model without its loss.

    `head` is the weight (V, H) of the head: the embedding's own where `tied`.
    """

    def __init__(self, shape: Shape, vocab: int, sequence: int, tied: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden)
        self.rotary = Rotary(shape.head_size, sequence)
        self.untied_head = None if tied else nn.Parameter(torch.empty(vocab, shape.hidden))

    @property
    def head(self) -> Tensor:
        """Weight of the head, (V, H) float32."""
        return self.embedding.weight if self.untied_head is None else self.untied_head

    def forward(self, ids: Tensor) -> Tensor:
        """Hidden states (batch * T, H) of ids (batch, T)."""
        x: Tensor = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, self.rotary)
        result: Tensor = self.norm(x)
        return result.reshape(-1, result.shape[-1])


def make_model(size: str, vocab: int, sequence: int, tied: bool, seed: int) -> Decoder:
    """A model on the CPU in float32; the same seed gives the same bits.

    Matrices are normal with deviation 0.02, those that write to the residual stream 0.02 /
    sqrt(2 layers), norms 1. Raises: ValueError for an unknown size.
    """
    shape = shape_of(size)
    model = Decoder(shape, vocab, sequence, tied)
    generator = torch.Generator().manual_seed(seed)
    narrow = INIT_DEVIATION / math.sqrt(2 * shape.layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                continue
            writes = name.endswith(("attention.out.weight", "mlp.down.weight"))
            parameter.normal_(0.0, narrow if writes else INIT_DEVIATION, generator=generator)
    return model
