"""The Dockerfiles, as far as they can be judged without an engine."""

import pathlib
import re
import subprocess
import sys

import pytest

from chart import ROOT, Rendered, pods

DOCKERFILES = {name: ROOT / name / "Dockerfile" for name in ("router", "prefill-worker", "decode-worker")}


@pytest.mark.parametrize("name", DOCKERFILES)
def test_hadolint(name: str) -> None:
    hadolint = pathlib.Path(sys.executable).parent / "hadolint"
    done = subprocess.run([hadolint, "--no-fail", "--failure-threshold=none", DOCKERFILES[name]], capture_output=True, text=True, check=True)
    assert done.stdout == ""


@pytest.mark.parametrize("name", DOCKERFILES)
def test_it_copies_what_is_there(name: str) -> None:
    text = DOCKERFILES[name].read_text()
    for source in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert (ROOT / source).exists(), source
    for script in re.findall(r"scripts/\w+\.sh", text):
        assert (ROOT / script).exists(), script
    assert "\nUSER 65532:65532\n" in text


def test_the_demo_checkpoint_is_where_the_chart_looks(rendered: Rendered) -> None:
    for _, spec in pods(rendered("trial")):
        for arg in spec["containers"][0].get("args", []):
            if arg.startswith("--model=/"):
                folder = arg.removeprefix("--model=")
                assert all(f"COPY {folder[1:]} {folder}" in path.read_text() for path in DOCKERFILES.values())
