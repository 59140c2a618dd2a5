"""One torch thread: shapes here are small, and spinning threads slow each other down on 2 cores."""

import gc

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _quick_garbage_collection() -> None:
    """Measuring collects garbage before it reads memory; all that was imported makes that slow."""
    gc.collect()
    gc.freeze()
