"""The command that repeats a job, as a reader can paste it into a shell."""

import json
from typing import Any

from lossbench.service.contract.job import JobRequest


def request_body(request: JobRequest) -> dict[str, Any]:
    """The request with contenders in text form and without what is the default."""
    body = request.model_dump(mode="json", exclude_defaults=True)
    body["contenders"] = [contender.text for contender in request.contenders]
    body["shapes"] = [
        spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
        for spec in request.shapes
    ]
    if "baseline" in body:
        body["baseline"] = request.baseline.text
    return body


def submit_command(request: JobRequest) -> str:
    """`lossbench submit` with the job file on standard input."""
    text = json.dumps(request_body(request), indent=1, ensure_ascii=False)
    return f"lossbench submit --watch /dev/stdin <<'JOB'\n{text}\nJOB"
