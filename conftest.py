"""Simulated accelerators, Chromium, and a cache of tests that is not the user's."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from onnxplug_testing import SimulatedFactory

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""What Chromium may be called."""


@pytest.fixture(scope="session", autouse=True)
def cache_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A folder for the cache, which subprocesses and parallel workers share."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ONNXPLUG_CACHE_DIR", str(root / "cache"))
        # what plans is to be tested, not what an earlier test has left
        patch.setenv("ONNXPLUG_CPU_KEEP_PLANS", "0")
        yield


@pytest.fixture
def simulated() -> Iterator[Callable[..., SimulatedFactory]]:
    """Makes simulated EPs known for one test: ``simulated(**knobs)``.

    Afterwards no stream may be open.
    """
    # not all environments of tests have it
    from onnxplug.plugins import registry
    from onnxplug_testing import Knobs, SimulatedFactory

    factories: list[SimulatedFactory] = []

    def make(**knobs: Any) -> SimulatedFactory:
        factory = SimulatedFactory(Knobs(**knobs))
        registry.add(factory)
        factories.append(factory)
        return factory

    yield make
    for factory in factories:
        registry.remove(factory.name)
    if any(factory.open_streams for factory in factories):
        # an exception and the frames that it passed refer to each other
        gc.collect()
    assert [f.open_streams for f in factories] == [[]] * len(factories)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, of this machine.

    Without it tests are skipped, or fail if ONNXPLUG_REQUIRE names it.
    """
    named = os.environ.get("ONNXPLUG_BROWSER")
    path = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        if "browser" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail("no Chromium; install it, on Debian by apt install chromium")
        pytest.skip("no Chromium")
    from playwright.sync_api import sync_playwright

    # its sandbox is not for root
    args = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=args)
        yield chromium
        chromium.close()


def pytest_collection_finish() -> None:
    """Let garbage be looked for among what tests make only.

    The tests themselves, some twenty thousand, took 0.3 s each time.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Any:
    """Let garbage be looked for among what tests of the same file make only.

    What earlier ones imported and compiled took a tenth of the time of all tests.
    """
    done = yield
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()
    return done
