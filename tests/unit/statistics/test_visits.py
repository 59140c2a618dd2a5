"""Visits of one arm that lie far apart make a result noisy, whatever the pooled quartiles say."""

from lossbench.service.statistics.summary import is_noisy, summarise, visits_differ


def test_visits_when_one_is_disturbed_differ_although_the_pool_looks_calm() -> None:
    calm, disturbed = [1.0] * 200, [80.0] * 4
    visits = [calm, disturbed, calm]
    assert visits_differ(visits)
    assert not is_noisy(summarise([sample for visit in visits for sample in visit]))


def test_visits_within_ten_percent_do_not_differ() -> None:
    assert not visits_differ([[1.00], [1.09], [1.05]])
    assert visits_differ([[1.00], [1.11]])
    assert not visits_differ([])
