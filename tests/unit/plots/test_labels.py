"""Labels of marks: none meets another, covers a mark or leaves the panel."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from lossbench.service.plots import labels
from lossbench.service.plots.labels import Label, placed

WIDTH, HEIGHT = 300.0, 250.0
LABELS = st.lists(
    st.builds(
        Label,
        x=st.floats(0, WIDTH),
        y=st.floats(0, HEIGHT),
        text=st.text("abcdefgh", min_size=1, max_size=40),
        first=st.booleans(),
    ),
    max_size=25,
)


@settings(max_examples=100, deadline=None)
@given(LABELS)
def test_placed_labels_never_meet(found: list[Label]) -> None:
    places = placed(found, WIDTH, HEIGHT)
    boxes = [labels._box(label, place) for label, place in zip(found, places, strict=True) if place]
    for one, other in combinations(boxes, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
        assert apart
    for left, top, right, bottom in boxes:
        assert left >= 0
        assert top >= 0
        assert right <= WIDTH
        assert bottom <= HEIGHT


def test_a_label_alone_stands_to_the_right_of_its_mark() -> None:
    assert placed([Label(100, 100, "flce", first=False)], WIDTH, HEIGHT) == ["middle right"]
    assert placed([Label(295, 100, "flce", first=False)], WIDTH, HEIGHT) == ["middle left"]


def test_the_first_ones_get_the_place_that_two_want() -> None:
    # so long that each fits above the marks or below them only
    long = "x" * 45
    crowd = [Label(150 + n, 20, long, first=n == 2) for n in range(3)]
    assert placed(crowd, WIDTH, 40) == ["bottom center", "", "top center"]
