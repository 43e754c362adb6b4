"""The site in a browser: no error in its console, nothing asked of another host, readable on a narrow screen."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests import sites

pytestmark = pytest.mark.slow
NARROW, WIDE = {"width": 400, "height": 800}, {"width": 1280, "height": 900}
SOME = ("index", "claims", "methods/index", "methods/mc_grpo", f"notebooks/{sites.RUN}", "guide/start", "api/index")


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def folder(browser, tmp_path_factory) -> Path:
    """The pages; nothing is built where there is no browser."""
    return sites.site(tmp_path_factory)


@pytest.fixture(scope="module")
def address(folder) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class Visit:
    """A tab that keeps what went wrong, and lets nothing out to other hosts."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(120_000)  # a busy machine is slow, not broken
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.wrong.append(f"{self.page.url}: {error}"))
        self.page.on("response", self._answered)
        self.page.route("**/*", self._asked)

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"{self.page.url}: {message.text}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"{self.page.url}: {response.url} gave {response.status}")

    def _asked(self, route: Any) -> None:
        if urlsplit(route.request.url).hostname in ("127.0.0.1", None):
            return route.continue_()
        self.wrong.append(f"{self.page.url} asked for {route.request.url}")
        return route.abort()

    def open(self, url: str) -> Any:
        self.page.goto(url, wait_until="load")
        self.page.wait_for_function("document.fonts.status === 'loaded'")
        return self.page

    def __enter__(self) -> Visit:
        return self

    def __exit__(self, *_: Any) -> None:
        self.context.close()


def overflow(page: Any) -> int:
    """Pixels by which the page is wider than the window."""
    return page.evaluate("document.scrollingElement.scrollWidth - document.documentElement.clientWidth")


def seen_pictures(page: Any) -> tuple[int, list[str]]:
    """How many pictures the page has, and those that did not load or have no description."""
    page.evaluate("document.querySelectorAll('img').forEach(i => { i.loading = 'eager' })")
    page.wait_for_function("[...document.images].every(i => i.complete)")
    bad = "[...document.images].filter(i => !i.naturalWidth || !i.alt.trim()).map(i => i.src)"
    return page.evaluate("document.images.length"), page.evaluate(bad)


def test_every_page_loads_without_an_error_and_fits_400_pixels(browser, folder, address) -> None:
    with Visit(browser, viewport=NARROW) as visit:
        wide, bad = [], []
        pages = sorted(folder.rglob("*.html"))
        for path in pages:
            page = visit.open(f"{address}/{path.relative_to(folder).as_posix()}")
            wide += [path.name] if overflow(page) > 0 else []
            bad += seen_pictures(page)[1]
        assert visit.wrong == []
        assert wide == []
        assert bad == []
        assert len(pages) > 40


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_in_both_schemes(browser, address, screenshot, scheme) -> None:
    """Screenshots to look at; each scheme has its own ground, and the text stands out from it."""
    grounds = set()
    for size, viewport in (("wide", WIDE), ("narrow", NARROW)):
        with Visit(browser, viewport=viewport, color_scheme=scheme) as visit:
            for name in SOME:
                page = visit.open(f"{address}/{name}.html")
                screenshot(page, f"site-{name.replace('/', '-')}-{size}-{scheme}", full_page=name == "index")
                grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
                assert contrast(page, ".md-content h1, .md-content p, .rl-verdict") >= 4.5, name
            assert visit.wrong == []
    assert len(grounds) == 1
    light = all(int(part) > 200 for part in grounds.pop().strip("rgba()").split(",")[:3])
    assert light is (scheme == "light")


def contrast(page: Any, selector: str) -> float:
    """The lowest contrast (WCAG 2, 1 to 21) of the text of some elements against what is behind it."""
    return page.evaluate(
        """selector => {
          const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
          const rgba = colour => {
            canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data].map((v, i) => i < 3 ? v : v / 255);
          };
          const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3]));
          const light = c => c.map(v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
            .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
          const ground = e => {
            const own = rgba(getComputedStyle(e).backgroundColor);
            return own[3] === 1 || !e.parentElement ? own.slice(0, 3) : over(own, ground(e.parentElement));
          };
          const ratios = [...document.querySelectorAll(selector)].filter(e => e.offsetParent && e.innerText.trim())
            .map(e => {
              const under = ground(e), text = over(rgba(getComputedStyle(e).color), under);
              const [a, b] = [light(text), light(under)].sort((x, y) => y - x);
              return (a + .05) / (b + .05);
            });
          return Math.min(...ratios);
        }""",
        selector,
    )


def test_gallery_leads_to_notebook_claim_and_method(browser, address) -> None:
    with Visit(browser, viewport=WIDE) as visit:
        page = visit.open(f"{address}/index.html")
        page.locator(".rl-card .rl-verdicts a").first.click()
        page.wait_for_url("**/claims.html#*")
        assert page.locator(":target").count() == 1
        page.goto(f"{address}/index.html")
        page.locator(".rl-card > a").first.click()
        page.wait_for_url("**/notebooks/*.html")
        page.goto(f"{address}/methods/index.html")
        page.get_by_role("link", name="mc_grpo", exact=True).first.click()
        page.wait_for_url("**/methods/mc_grpo.html")
        assert page.get_by_text("MAD = median_i |r_i - m|").is_visible()
        assert visit.wrong == []


def test_notebook_page_shows_step_formula_and_figure(browser, address, screenshot) -> None:
    with Visit(browser, viewport=WIDE) as visit:
        page = visit.open(f"{address}/notebooks/{sites.RUN}.html")
        strip = page.locator('[id^="rlk"]').first
        strip.scroll_into_view_if_needed()
        assert strip.is_visible() and strip.bounding_box()["height"] > 100
        screenshot(page, "site-slow-motion")
        label = strip.locator("label", has_text="advantage").first
        label.click()
        assert strip.locator("input:checked + label", has_text="advantage").count() == 1
        assert page.locator("math").first.bounding_box()["width"] > 5
        assert page.evaluate("document.fonts.check('16px \"rlkit math\"')")
        count, bad = seen_pictures(page)
        assert count >= 5 and bad == []
        assert visit.wrong == []


@pytest.mark.parametrize("place", ["server", "disk"])
def test_search_finds_a_function(browser, folder, address, place) -> None:
    """The same pages from a server and opened as files."""
    root = address if place == "server" else folder.as_uri()
    with Visit(browser, viewport=WIDE) as visit:
        page = visit.open(f"{root}/index.html")
        page.locator('.md-search__input[name="query"]').fill("median_pivot")
        found = page.locator(".md-search-result__item")
        found.first.wait_for()
        assert found.first.get_by_text("median_pivot").first.is_visible()
        assert visit.wrong == []
