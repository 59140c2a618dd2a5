"""What must not happen inside a timed part: compilation, and an allocator that had to try again."""

import gc
import sys
from typing import Any


class CompileWatch:
    """Counts what torch.compile and Triton compile in this process."""

    def __init__(self) -> None:
        self._seen = self._triton = 0
        self._hooked = False

    def hook(self) -> None:
        """Listen to Triton once something has imported it: that import takes seconds.

        A listener that is there already, another watch or the user's own, goes on hearing.
        """
        triton = sys.modules.get("triton")
        runtime = getattr(getattr(triton, "knobs", None), "runtime", None)
        if self._hooked or runtime is None:
            return
        earlier = runtime.jit_post_compile_hook

        def compiled(**told: Any) -> Any:
            self._triton += 1
            return earlier(**told) if earlier is not None else None

        runtime.jit_post_compile_hook = compiled
        self._hooked = True

    def since_last(self) -> int:
        """Graphs and kernels compiled since the last call."""
        self.hook()
        dynamo = sys.modules.get("torch._dynamo.utils")
        graphs = int(dynamo.counters["stats"]["unique_graphs"]) if dynamo else 0
        count = graphs + self._triton
        fresh, self._seen = count - self._seen, count
        return fresh


class RetryWatch:
    """Counts how often torch's allocator had to free its cache and ask the driver again."""

    def __init__(self) -> None:
        self._seen = 0

    def since_last(self) -> int:
        """Retries since the last call; 0 without a GPU."""
        import torch

        if not torch.cuda.is_available():
            return 0
        count = int(torch.cuda.memory_stats().get("num_alloc_retries", 0))
        fresh, self._seen = count - self._seen, count
        return fresh


def autotune_choices() -> list[str]:
    """`kernel: configuration` of every Triton autotuner of this process that has chosen one."""
    module = sys.modules.get("triton.runtime.autotuner")
    if module is None:
        return []
    found = set()
    for thing in gc.get_objects():
        # by exact type: asking a lazy proxy for its class would load what it stands for
        if type(thing) is module.Autotuner and getattr(thing, "best_config", None) is not None:
            found.add(f"{thing.base_fn.__name__}: {thing.best_config}")
    return sorted(found)
