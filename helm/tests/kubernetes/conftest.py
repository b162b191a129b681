"""One Kubernetes for all tests."""

from collections.abc import Iterator

import pytest

from cluster import Kubernetes


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubernetes]:
    made = Kubernetes(tmp_path_factory.mktemp("kubernetes"))
    try:
        made.begin()
        yield made
    finally:
        made.stop()
