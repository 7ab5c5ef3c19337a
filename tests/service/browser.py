"""A browser for tests of the page."""

import re
import shutil
from pathlib import Path

_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
)
_TIMEOUT = 60.0  # seconds


class RecordedPage:
    """A page whose requests and console errors are recorded."""

    def __init__(self, browser):
        self._context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
        self._context.set_default_timeout(1000 * _TIMEOUT)
        self.page, self._requests, self._errors = self._context.new_page(), [], []
        self.page.on("request", lambda request: self._requests.append(request.url))
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self._errors.append(str(error)))

    def check(self, tolerated):
        home = self.page.evaluate("location.origin")
        requests, errors = self._requests.copy(), self._errors.copy()
        self._requests.clear()
        self._errors.clear()
        assert requests
        assert [url for url in requests if not url.startswith((f"{home}/", "data:", f"blob:{home}/"))] == []
        assert [text for text in errors if not any(re.search(pattern, text) for pattern in tolerated)] == []
        assert self.page.evaluate("window.injected") is None

    def close(self):
        self._context.close()

    def _on_console(self, message):
        if message.type in {"error", "warning"}:
            self._errors.append(message.text)


def open_browser(playwright):
    return playwright.chromium.launch(executable_path=chromium(), args=list(_ARGUMENTS))


def chromium():
    if Path("/usr/bin/chromium").exists():
        return "/usr/bin/chromium"
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name)) is not None), None)


def why_missing():
    try:
        import playwright.sync_api  # noqa: F401, PLC0415
    except ImportError:
        return "playwright is not installed"
    return "there is no Chromium: apt-get install chromium" if chromium() is None else None
