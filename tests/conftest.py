"""What the Python tests share: where the built programs are, and a converted demo model.

SLUICE_BUILD names the build folder (build/check), SLUICE_BIN the program under test (sluice in it).
A test that needs one of them is skipped where it was not built, unless the variable names it.
"""
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def _built(path, variable):
    if not path.exists():
        message = f"{path} is not there: cmake --preset check && cmake --build --preset check"
        pytest.fail(message) if variable in os.environ else pytest.skip(message)
    return path


@pytest.fixture(scope="session")
def build_dir():
    """The build folder; helper programs of the tests are at the same place in it as in the sources."""
    path = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build" / "check")).resolve()
    return _built(path, "SLUICE_BUILD")


@pytest.fixture(scope="session")
def sluice():
    """Path of the command line program."""
    default = pathlib.Path(os.environ.get("SLUICE_BUILD", ROOT / "build" / "check")) / "sluice"
    return _built(pathlib.Path(os.environ.get("SLUICE_BIN", default)).resolve(), "SLUICE_BIN")


@pytest.fixture(scope="session")
def demo_store(sluice, tmp_path_factory):
    """The demo model, converted once a session. Tests that damage a store copy it first."""
    store = tmp_path_factory.mktemp("store") / "demo"
    subprocess.run([sluice, "convert", ROOT / "models" / "demo", store], check=True,
                   stdin=subprocess.DEVNULL, capture_output=True, timeout=300)
    return store
