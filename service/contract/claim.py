"""A claim: what somebody said of these kernels, and the rule that measured cells decide it by.

One YAML file a claim, in `claims/`, its name is its id. The rule was written before the cells were
looked at. A file that does not fit is a fault of the package, found by a test, not by a user.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Self

import yaml
from pydantic import Field, HttpUrl, model_validator

from .claim_rule import CellName, LeafRule, Rule, leaves_of
from .errors import NotFoundError
from .job import JobRequest
from .run import Record

FOLDER = Path(__file__).with_name("claims")
Sentence = Annotated[str, Field(min_length=10, max_length=600)]


class ClaimVerdict(StrEnum):
    """What the stored results say of a claim."""

    HOLDS = "holds here"
    FAILS = "fails here"
    UNTESTED = "untested"


class Original(Record):
    """Where the claim was made: on what, and the figure that was given there."""

    environment: Annotated[str, Field(min_length=3, max_length=300)]
    figure: Annotated[str, Field(min_length=1, max_length=300)]


class Claim(Record):
    """One claim. `job` is a body of `POST /jobs` whose cells are those of the rule."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=64)]
    title: Annotated[str, Field(min_length=10, max_length=100)]
    statement: Sentence
    source: HttpUrl
    original: Original
    job: dict[str, Any]
    rule: Rule
    ours: bool = False
    """Whether we made it: then `source` is the code or the thread that it is about."""
    cannot_run: Sentence | None = None
    """Why its job gives no answer with this version."""

    @model_validator(mode="after")
    def _job_is_for_one_device(self) -> Self:
        if self.request.accelerator == "any":
            raise ValueError("the job names its accelerator: a claim is decided on one device")
        return self

    @property
    def request(self) -> JobRequest:
        """Its job. Raises ValidationError for one that is not valid."""
        return JobRequest.model_validate(self.job)

    @property
    def accelerator(self) -> str:
        """The device on which it is decided, by its queue's name: `h200`."""
        return str(self.job["accelerator"])

    @cached_property
    def leaves(self) -> tuple[LeafRule, ...]:
        """The parts of its rule that look at cells, in order."""
        return tuple(leaves_of(self.rule))

    @cached_property
    def cells(self) -> tuple[CellName, ...]:
        """Every cell that its rule looks at, each once, in order."""
        return tuple(dict.fromkeys(cell for leaf in self.leaves for cell in leaf.cells))


def read_claim(path: Path) -> Claim:
    """The claim in a file. Raises ValueError naming the file and what is wrong with it."""
    try:
        body = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(body, dict):
            raise ValueError("not a mapping")
        return Claim.model_validate({"id": path.stem, **body})
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path.name}: {error}") from error


@cache
def load_claims() -> Mapping[str, Claim]:
    """The shipped claims by id, those of others first, each group in the order of their ids."""
    found = [read_claim(path) for path in sorted(FOLDER.glob("*.yaml"))]
    ordered = sorted(found, key=lambda claim: (claim.ours, claim.id))
    return MappingProxyType({claim.id: claim for claim in ordered})


def get_claim(claim_id: str) -> Claim:
    """One shipped claim. Raises NotFoundError."""
    claim = load_claims().get(claim_id)
    if claim is None:
        raise NotFoundError(
            f"there is no claim {claim_id[:100]!r}; GET /api/v1/claims and `lossbench claims` "
            "list them"
        )
    return claim
