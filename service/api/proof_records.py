"""Body of a device proof."""

from datetime import datetime
from typing import Any, Literal

from ..contract.run import Record


class ProofView(Record):
    """A proof of a device. `record` as it was found: see docs/reference/api.md."""

    id: str
    kind: Literal["self_test", "doctor", "pool"]
    device_name: str
    device_uuid_hash: str
    environment_id: str
    passed: bool
    measured_at: datetime
    record: dict[str, Any]
