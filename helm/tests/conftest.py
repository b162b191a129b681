"""The chart as each file of values renders it."""

import pytest

from chart import VALUES, Rendered


@pytest.fixture(scope="session")
def rendered() -> Rendered:
    return Rendered()


@pytest.fixture(params=[path.stem for path in VALUES])
def documents(request: pytest.FixtureRequest, rendered: Rendered) -> list[dict]:
    return rendered(request.param)
