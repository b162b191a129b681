"""One real cluster, and one runner of each SDK."""

import importlib.util
import pathlib
import sys

import pytest

from sdks import ROOT, RUNNERS, Sdk
from stage import PERMITS

# The cluster's own tests start clusters already; their module has the name of this one.
CLUSTER = ROOT / "cli" / "tests" / "cluster"
sys.path.append(str(CLUSTER))
spec = importlib.util.spec_from_file_location("cluster_conftest", CLUSTER / "conftest.py")
running = importlib.util.module_from_spec(spec)
spec.loader.exec_module(running)

import certificates  # noqa: E402


def pytest_addoption(parser):
    parser.addoption("--sdk", action="append", choices=list(RUNNERS), help="one SDK, instead of all; may be repeated")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("TANDEM_MAX_IN_FLIGHT", str(PERMITS))
        environment.setenv("TANDEM_MAX_WAITING", "0")
        up = running.Cluster(tmp_path_factory.mktemp("cluster"))
    yield up
    up.stop()


@pytest.fixture(scope="session")
def sdks(request):
    made = [Sdk(name) for name in request.config.getoption("--sdk") or RUNNERS]
    yield made
    for sdk in made:
        sdk.stop()


@pytest.fixture(scope="session")
def authorities(tmp_path_factory) -> dict[str, pathlib.Path]:
    """Folders with a router's certificate; SDKs trust `ours`."""
    folder = tmp_path_factory.mktemp("authorities")
    return {name: certificates.Authority(name).fill(folder / name) for name in ("ours", "theirs")}


@pytest.fixture(scope="session")
def recorded() -> list[dict]:
    return running.recorded_of(running.MODEL)
