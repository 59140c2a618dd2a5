"""Flags to a request: commas separate contenders, but not the halves of a range."""

import pytest

from lossbench.service.cli.requests import split_contenders


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["a,b"], ["a", "b"]),
        (["a[x=1,y=2],b"], ["a[x=1,y=2]", "b"]),
        (["liger@>=0.5,<0.7"], ["liger@>=0.5,<0.7"]),
        (["a,liger@>=0.5, <0.7 , !=0.6.1,b"], ["a", "liger@>=0.5,<0.7,!=0.6.1", "b"]),
        (["liger@>=0.5,<0.7[x=1,y=2],b"], ["liger@>=0.5,<0.7[x=1,y=2]", "b"]),
        (["liger@~=0.5,b", "c@==1.*"], ["liger@~=0.5", "b", "c@==1.*"]),
        ([" , a ,,"], ["a"]),
        # nothing before it: said to be half a range when it is read
        (["<0.7"], ["<0.7"]),
        (["a", "<0.7"], ["a", "<0.7"]),
    ],
)
def test_split_contenders_keeps_ranges_and_params_whole(
    values: list[str], found: list[str]
) -> None:
    assert split_contenders(values) == found
