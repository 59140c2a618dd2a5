"""Model presets: numbers and where they come from."""

from __future__ import annotations

import pytest

from lossbench.kernels.presets import LIGER, LITGPT, PRESETS, TRANSFORMERS


@pytest.mark.parametrize(
    ("name", "hidden", "vocab", "options", "source"),
    [
        ("llama-3-8b", 4096, 128256, {}, LIGER),
        ("gemma-2-2b", 2304, 256000, {"softcap": 30.0}, TRANSFORMERS),
        ("command-r", 8192, 256000, {"logit_scale": 0.0625}, TRANSFORMERS),
        ("phi-2", 2560, 51200, {"bias": True}, LITGPT),
        ("gpt-oss-20b", 2880, 201088, {}, TRANSFORMERS),
    ],
)
def test_preset_known_model_has_its_numbers(
    name: str, hidden: int, vocab: int, options: dict[str, object], source: str
) -> None:
    preset = PRESETS[name]

    assert (preset.hidden, preset.vocab, preset.options) == (hidden, vocab, options)
    assert preset.source == source


def test_presets_names_are_lower_case_and_unique() -> None:
    assert len(PRESETS) >= 30
    for name, preset in PRESETS.items():
        assert name == preset.name == name.lower()
        assert " " not in name
