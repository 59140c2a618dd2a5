"""Shapes of real models: hidden size, vocabulary and what their heads ask of the loss."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OptionValue = float | bool

# Numbers read in a source (Liger's registry, litgpt's configurations with padded vocabularies,
# library defaults) and numbers remembered from model cards are told apart: only the first kind was
# checked.
LIGER = "Liger registry"
TRANSFORMERS = "transformers 5.24.0 default config"
LITGPT = "litgpt/config.py 26857050"
UNVERIFIED = "model card, unverified"
SYNTHETIC = "published benchmark"


@dataclass(frozen=True)
class Preset:
    """A model's head. `options` are case options by the problem's field names."""

    name: str
    hidden: int
    vocab: int
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    source: str = UNVERIFIED


def _softcap(value: float) -> dict[str, OptionValue]:
    return {"softcap": value}


def _scale(value: float) -> dict[str, OptionValue]:
    return {"logit_scale": value}


_PRESETS: tuple[Preset, ...] = (
    Preset("gpt-2", 768, 50257, source=TRANSFORMERS),
    Preset("gpt-2-xl", 1600, 50257),
    Preset("phi-1.5", 2048, 51200, {"bias": True}, TRANSFORMERS),
    Preset("phi-2", 2560, 51200, {"bias": True}, source=LITGPT),
    Preset("phi-3-mini", 3072, 32064, source=TRANSFORMERS),
    Preset("phi-3-medium", 5120, 32064),
    Preset("phi-4", 5120, 100352, source=LITGPT),
    Preset("phi-4-mini", 3072, 200064, source=LITGPT),
    Preset("smollm2-135m", 576, 49152, source=LITGPT),
    Preset("smollm2-1.7b", 2048, 49152, source=LITGPT),
    Preset("smollm3-3b", 2048, 128256, source=TRANSFORMERS),
    Preset("olmo-2-7b", 4096, 100352, {"lse_square_scale": 1e-4}, source=LITGPT),
    Preset("olmo-2-13b", 5120, 100352, {"lse_square_scale": 1e-4}, source=LITGPT),
    Preset("llama-2-7b", 4096, 32000, source=LIGER),
    Preset("llama-2-13b", 5120, 32000, source=LITGPT),
    Preset("llama-2-70b", 8192, 32000, source=LITGPT),
    Preset("mistral-7b", 4096, 32000, source=LITGPT),
    Preset("mixtral-8x7b", 4096, 32000, source=LITGPT),
    Preset("mistral-nemo-12b", 5120, 131072),
    Preset("llama-3-8b", 4096, 128256, source=LIGER),
    Preset("llama-3-70b", 8192, 128256, source=LITGPT),
    Preset("llama-3-405b", 16384, 128256, source=LITGPT),
    Preset("llama-3.2-1b", 2048, 128256, source=LITGPT),
    Preset("llama-3.2-3b", 3072, 128256, source=LITGPT),
    Preset("llama-4-scout", 5120, 202048, source=TRANSFORMERS),
    Preset("qwen2.5-0.5b", 896, 151936, source=LITGPT),
    Preset("qwen2.5-1.5b", 1536, 151936, source=LITGPT),
    Preset("qwen2.5-7b", 3584, 152064, source=LIGER),
    Preset("qwen2.5-32b", 5120, 152064, source=LIGER),
    Preset("qwen2.5-72b", 8192, 152064, source=LIGER),
    Preset("qwen3-0.6b", 1024, 151936, source=LITGPT),
    Preset("qwen3-4b", 2560, 151936, source=LITGPT),
    Preset("qwen3-8b", 4096, 151936, source=TRANSFORMERS),
    Preset("qwen3-32b", 5120, 151936, source=LITGPT),
    Preset("qwen3-30b-a3b", 2048, 151936, source=TRANSFORMERS),
    Preset("qwen3.5", 4096, 248320, source=TRANSFORMERS),
    Preset("qwen3.5-moe", 2048, 248320, source=TRANSFORMERS),
    Preset("gemma-2-2b", 2304, 256000, _softcap(30.0), TRANSFORMERS),
    Preset("gemma-2-9b", 3584, 256000, _softcap(30.0), source=LITGPT),
    Preset("gemma-2-27b", 4608, 256000, _softcap(30.0), source=LITGPT),
    Preset("gemma-3-1b", 1152, 262144, source=LITGPT),
    Preset("gemma-3-4b", 2560, 262208),
    Preset("gemma-3-12b", 3840, 262208),
    Preset("gemma-3-27b", 5376, 262208),
    Preset("gemma-4", 2304, 262144, source=TRANSFORMERS),
    Preset("command-r", 8192, 256000, _scale(0.0625), TRANSFORMERS),
    Preset("command-r-plus", 12288, 256000, _scale(0.83)),
    Preset("command-r7b", 4096, 256000, _scale(0.25)),
    Preset("command-a", 12288, 256000, _scale(0.25)),
    Preset("deepseek-v2-lite", 2048, 102400, source=TRANSFORMERS),
    Preset("deepseek-v3", 7168, 129280, source=TRANSFORMERS),
    Preset("kimi-k2", 7168, 163840),
    Preset("gpt-oss-20b", 2880, 201088, source=TRANSFORMERS),
    Preset("glm-4-9b", 4096, 151552, source=TRANSFORMERS),
    Preset("yi-34b", 7168, 64000),
    Preset("fla-benchmark", 4096, 120000, source=SYNTHETIC),
    Preset("geiping-benchmark", 2048, 131072, source=SYNTHETIC),
)

PRESETS: dict[str, Preset] = {preset.name: preset for preset in _PRESETS}
