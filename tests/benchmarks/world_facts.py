"""What the made-up service measures: machines, contenders with their versions, and cases."""

from typing import NamedTuple


class Machine(NamedTuple):
    """A GPU with its speed (TFLOP/s of the matrix product) and memory in GiB."""

    device: str
    hardware: str
    tflops: float
    gib: int


class Entrant(NamedTuple):
    """A contender: its kernel, params, time over the product's, and how often a version comes."""

    kernel: str
    params: str
    factor: float
    versions: tuple[str, ...]
    is_package: bool

    def text(self, version: str) -> str:
        """The contender's text form; built-in kernels have no version in it."""
        head = f"{self.kernel}@{version}" if self.is_package else self.kernel
        return f"{head}[{self.params}]" if self.params else head


class Case(NamedTuple):
    """A case of the grid."""

    tokens: int
    hidden: int
    vocab: int
    dtype: str

    @property
    def text(self) -> str:
        """Its text form."""
        return f"N{self.tokens}-H{self.hidden}-V{self.vocab}-{self.dtype}"


Place = tuple[Case, str]
"""A case and a pass."""

MACHINES = (
    Machine("NVIDIA H200", "hw-h200-a", 690.0, 141),
    Machine("NVIDIA H100 80GB HBM3", "hw-h100-a", 620.0, 80),
    Machine("NVIDIA A100-SXM4-80GB", "hw-a100-a", 250.0, 80),
    Machine("NVIDIA L40S", "hw-l40s-a", 220.0, 48),
    Machine("NVIDIA GeForce RTX 4090", "hw-4090-a", 160.0, 24),
)
TORCH = ("2.7.0", "2.8.0", "2.9.1", "2.10.0", "2.11.0")
_LIGER = ("0.6.0", "0.6.2", "0.6.5", "0.7.0", "0.8.0", "0.8.3", "0.8.5")
_CCE = ("24.11.4", "24.12.3", "25.1.1")
ENTRANTS = (
    Entrant("torch-naive", "", 2.4, TORCH, False),
    Entrant("torch-upcast", "", 2.9, TORCH, False),
    Entrant("torch-compile", "", 1.9, TORCH, False),
    Entrant("torch-compile", "dynamic=true", 2.0, TORCH, False),
    Entrant("torch-compile-chunked", "", 2.1, TORCH, False),
    Entrant("torch-compile-chunked", "chunk_rows=1024", 2.2, TORCH, False),
    Entrant("torch-compile-chunked", "chunk_rows=4096", 2.0, TORCH, False),
    Entrant("torch-native", "", 1.8, TORCH, False),
    Entrant("torch-native", "chunk_rows=2048", 1.9, TORCH, False),
    Entrant("flce", "", 1.5, ("1",), False),
    Entrant("flce", "chunk_rows=1024", 1.6, ("1",), False),
    Entrant("flce", "chunk_rows=4096", 1.55, ("1",), False),
    Entrant("geiping", "", 2.3, ("1",), False),
    Entrant("liger", "", 2.6, _LIGER, True),
    Entrant("liger", "impl=triton", 2.6, _LIGER, True),
    Entrant("liger", "accum_dtype=float32", 2.8, _LIGER, True),
    Entrant("cce", "", 1.7, _CCE, True),
    Entrant("cce", "filter_eps=0.0", 2.2, _CCE, True),
    Entrant("fla", "", 2.5, ("0.6.0",), True),
    Entrant("quack", "", 1.6, ("0.6.5",), True),
)
WIDTHS = (
    (576, 49152),
    (768, 50257),
    (896, 151936),
    (1024, 151936),
    (1152, 262144),
    (1536, 151936),
    (1600, 50257),
    (2048, 128256),
    (2304, 256000),
    (2560, 51200),
    (2880, 201088),
    (3072, 128256),
    (3584, 152064),
    (4096, 32000),
    (4096, 128256),
    (5120, 131072),
    (5120, 152064),
    (7168, 129280),
    (8192, 128256),
    (12288, 256000),
)
PASSES = ("forward", "forward_backward")


def grid() -> list[Place]:
    """The 400 places of the suite: 20 widths, 5 token counts, 2 types, 2 passes."""
    return [
        (Case(tokens, hidden, vocab, dtype), pass_)
        for dtype in ("bfloat16", "float16")
        for tokens in (2048, 4096, 8192, 16384, 32768)
        for hidden, vocab in WIDTHS
        for pass_ in PASSES
    ]


def sweep() -> list[Place]:
    """3,400 places of one sweep: 17 widths, 100 token counts, 2 passes."""
    return [
        (Case(tokens, hidden, vocab, "bfloat16"), pass_)
        for tokens in range(1000, 31_000, 300)
        for hidden, vocab in WIDTHS[:17]
        for pass_ in PASSES
    ]
