"""The status page in a real browser, in front of a real local cluster."""

import json
import os
import pathlib
import signal
import time

import httpx
import pytest
from playwright.sync_api import Page, expect, sync_playwright

from conftest import Cluster

MOMENT = 10_000
CONTRAST = """selector => {
  const channels = text => text.match(/[0-9.]+/g).slice(0, 3).map(Number);
  const light = text => {
    const [r, g, b] = channels(text).map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = element => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      if (colour !== "rgba(0, 0, 0, 0)") return colour;
    }
    return "rgb(255, 255, 255)";
  };
  return [...document.querySelectorAll(selector)].filter(element => element.checkVisibility()).map(element => {
    const [a, b] = [light(getComputedStyle(element).color), light(ground(element))];
    return [element.textContent, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)];
  });
}"""


@pytest.fixture(scope="module")
def browser():
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=os.environ["TANDEM_BROWSER"], args=flags)
        yield running
        running.close()


@pytest.fixture
def open_page(browser, cluster):
    """Opens the status page; what the browser complains about fails the test."""
    complaints, contexts = [], []

    def opened(**options) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(f"{cluster.http}/")
        expect(page.locator("#connection")).to_have_text("live", timeout=MOMENT)
        return page

    opened.complaints = complaints
    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def ask(cluster: Cluster, name: str, max_tokens: int = 20, prompt: str = "In the beginning ") -> dict:
    body = {"model": cluster.model.name, "prompt": prompt * 40, "max_tokens": max_tokens, "ignore_eos": True}
    answer = httpx.post(f"{cluster.http}/v1/completions", json=body, headers={"x-request-id": name}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def option(page: Page, name: str):
    """The latest request of this name."""
    return page.get_by_role("option", name=f"{name}:").first


def milliseconds(text: str) -> float:
    number, unit = text.replace(",", "").split()
    return float(number) * {"ms": 1, "s": 1000, "min": 60_000}[unit]


def test_what_happens_is_seen_without_a_reload(open_page, cluster):
    page = open_page()
    page.evaluate("window.stays = true")
    for role in ("prefill", "decode"):
        rows = page.locator(f"#{role} tbody tr")
        expect(rows).to_have_count(1)
        expect(rows.get_by_role("rowheader")).to_contain_text(f"{role}-0")
    body = {"model": cluster.model.name, "prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    slots = page.locator("#decode").get_by_role("meter", name="slots used")
    with httpx.stream(
        "POST", f"{cluster.http}/v1/completions", json=body, headers={"x-request-id": "long-one"}, timeout=60
    ) as answer:
        events = answer.iter_lines()
        next(events)
        expect(option(page, "long-one")).to_contain_text("decoding", timeout=MOMENT)
        expect(slots).to_have_js_property("value", 1, timeout=MOMENT)
        before = option(page, "long-one").text_content()
        expect(option(page, "long-one")).not_to_have_text(before, timeout=MOMENT)
    expect(option(page, "long-one")).to_contain_text("cancelled", timeout=MOMENT)
    expect(slots).to_have_js_property("value", 0, timeout=MOMENT)
    expect(page.locator("#transfer-count")).to_have_text("0")
    assert page.evaluate("window.stays")


def test_a_request_is_chosen_and_read_by_keyboard_alone(open_page, cluster):
    timing = ask(cluster, "older")["timing"]
    ask(cluster, "newer")
    page = open_page()
    expect(option(page, "newer")).to_contain_text("finished", timeout=MOMENT)
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "requests":
            break
    requests = page.locator("#requests")
    expect(requests).to_be_focused()
    assert page.locator("#requests .active").evaluate("option => getComputedStyle(option).outlineStyle") == "solid"
    page.keyboard.press("ArrowDown")
    assert requests.get_attribute("aria-activedescendant") == option(page, "older").get_attribute("id")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Request older")).to_be_visible()
    expect(option(page, "older")).to_have_attribute("aria-selected", "true")
    rows = page.locator("#request tbody tr").evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.textContent))")
    took = {stage: milliseconds(taken) for stage, _, taken, _ in rows}
    assert list(took) == ["queue", "prefill", "transfer", "decode"]
    for stage in ("queue", "prefill", "transfer"):
        assert took[stage] == pytest.approx(timing[stage] * 1000, abs=1), (stage, took, timing)
    assert took["decode"] > 0 and sum(took.values()) <= timing["total"] * 1000 + 50
    assert page.locator("#request rect:not(.track)").count() == 4
    # The list goes on living; the keyboard stays where it was.
    ask(cluster, "newest")
    expect(option(page, "newest")).to_contain_text("finished", timeout=MOMENT)
    expect(requests).to_be_focused()
    assert requests.get_attribute("aria-activedescendant") == option(page, "older").get_attribute("id")
    page.keyboard.press("Home")
    assert requests.get_attribute("aria-activedescendant") == option(page, "newest").get_attribute("id")
    page.keyboard.press("Escape")
    expect(page.locator("#request")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_in_light_and_dark_and_on_a_phone(open_page, cluster, scheme, tmp_path):
    ask(cluster, f"seen-in-{scheme}")
    folder = pathlib.Path(os.environ.get("TANDEM_SCREENSHOTS", tmp_path))
    for width in (1280, 360):
        page = open_page(color_scheme=scheme, viewport={"width": width, "height": 900})
        option(page, f"seen-in-{scheme}").click(timeout=MOMENT)
        page.screenshot(path=folder / f"status-{scheme}-{width}.png", full_page=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        red = int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]"))
        assert (red > 200) == (scheme == "light")
        texts = page.evaluate(CONTRAST, "h1, h1 span, h2, h3, p, dt, dd, th, td, caption, small, a, [role=option] span")
        assert len(texts) > 40
        assert [text for text in texts if text[1] < 4.5] == []


def test_only_its_own_files_are_loaded_and_run(open_page, cluster):
    page = open_page()
    answer = page.request.get(f"{cluster.http}/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    hosts = set(page.evaluate("performance.getEntriesByType('resource').map(entry => new URL(entry.name).origin)"))
    assert hosts == {cluster.http}
    page.evaluate("""() => {
      const script = document.createElement("script");
      script.textContent = "window.ran = true";
      document.body.append(script);
    }""")
    assert page.evaluate("window.ran") is None
    assert len(open_page.complaints) == 1 and "Content Security Policy" in open_page.complaints.pop()
    snapshot = page.request.get(f"{cluster.http}/status").json()
    assert {"router", "prefill", "decode", "transfers", "requests"} == set(snapshot)
    assert "beginning" not in json.dumps(snapshot)


def test_it_says_when_the_router_is_silent_and_comes_back(open_page, cluster):
    page = open_page()
    router = cluster.state["router"]["pid"]
    os.kill(router, signal.SIGSTOP)
    try:
        expect(page.locator("#connection")).to_have_text("disconnected, retrying", timeout=2 * MOMENT)
    finally:
        os.kill(router, signal.SIGCONT)
    expect(page.locator("#connection")).to_have_text("live", timeout=2 * MOMENT)
    until = time.monotonic() + 20
    while httpx.get(f"{cluster.http}/ready", timeout=10).status_code != 200 and time.monotonic() < until:
        time.sleep(0.1)
    ask(cluster, "after-silence")
    expect(option(page, "after-silence")).to_contain_text("finished", timeout=MOMENT)
