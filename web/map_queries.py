"""What the pages of maps, fronts and history share when they read the store."""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from lossbench.service.contract.catalogue import Catalogue
from lossbench.service.contract.lineage import names_of
from lossbench.service.store.models import EnvironmentRow
from lossbench.service.store.results import ResultFilter


def with_all_names(wanted: ResultFilter, catalogue: Catalogue) -> ResultFilter:
    """The filter with every name that the kernels it names were stored under."""
    if not wanted.kernel:
        return wanted
    names = [name for asked in wanted.kernel for name in names_of(asked, catalogue)]
    return wanted.model_copy(update={"kernel": list(dict.fromkeys(names))})


def measured_devices(session: Session) -> Sequence[str]:
    """Names of devices that something was measured on, not only imported for."""
    imported = EnvironmentRow.hardware_fingerprint.startswith("imported")
    query = sa.select(EnvironmentRow.device_name).where(~imported).distinct()
    return list(session.scalars(query.order_by(EnvironmentRow.device_name)))
