"""What every test leaves as it was."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes depends on what else the machine does, and no test asserts a time.
settings.register_profile("pixiu", deadline=None)
settings.load_profile("pixiu")


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Processes on loopback keep their secret in the user's state folder: of tests, in one of their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def root_logger_as_it_was() -> Iterator[None]:
    """A command that runs in the tests' own process sets up logging, to a stream that is gone with the test."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in root.handlers[:]:
        root.removeHandler(handler)
        if handler not in handlers:
            handler.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(level)
