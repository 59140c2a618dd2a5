"""Errors of the kernels room.

KernelError
├── UnknownKernel     the catalogue has no such kernel
└── UnsupportedHere   the contender cannot do this case here; becomes the outcome `unsupported`
"""


class KernelError(Exception):
    """Something in the kernels room cannot be done."""


class UnknownKernel(KernelError):  # noqa: N818
    """The catalogue has no kernel of that name."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"no kernel {name!r}; known: {', '.join(known)}")
        self.name = name
        self.known = known


class UnsupportedHere(KernelError):  # noqa: N818
    """The contender cannot do this case on this machine; `reason` is one line."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
