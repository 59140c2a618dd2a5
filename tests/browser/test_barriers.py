"""Every page without a serious barrier, by axe-core: in the full tier only."""

from typing import Any

import pytest

from .looking import PAGES, axe_source, looks, opened

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def axe() -> str:
    """The text of axe-core."""
    return axe_source()


@pytest.mark.parametrize(("name", "width", "scheme"), looks(often=False))
def test_page_has_no_serious_barrier(
    chromium: Any, live_service: Any, axe: str, name: str, width: int, scheme: str
) -> None:
    with opened(chromium, live_service, PAGES[name](live_service), width, scheme) as watched:
        watched.drawn()
        assert watched.barriers(axe) == []


def test_opened_parts_have_no_serious_barrier(chromium: Any, live_service: Any, axe: str) -> None:
    path = PAGES["compare"](live_service)
    with opened(chromium, live_service, path, 390, "dark") as watched:
        watched.drawn()
        page = watched.page
        page.locator("details[data-fragment] summary").first.click()
        page.wait_for_selector("[data-place] table")
        page.locator(".why").first.click()
        assert page.locator(".help:popover-open").count() == 1
        assert watched.barriers(axe) == []
        assert watched.said == []


def test_a_barrier_is_found(chromium: Any, live_service: Any, axe: str) -> None:
    with opened(chromium, live_service, "/", 1400, "light") as watched:
        watched.page.evaluate("document.querySelector('.lead').style.color = '#c8c8c8'")
        watched.page.evaluate("document.querySelector('.brand img').removeAttribute('alt')")
        found = " ".join(watched.barriers(axe))
        assert "color-contrast" in found
        assert "image-alt" in found
