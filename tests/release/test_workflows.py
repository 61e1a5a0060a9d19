"""The files that a host of repositories reads: they parse, and what they name exists."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
YAML = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml"]
TARGETS = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.M))


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("file", YAML, ids=lambda file: file.name)
def test_it_parses(file):
    assert isinstance(read(file), dict)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_a_workflow_may_only_read_and_ends(workflow):
    """A job that may write says so itself. YAML reads the key `on` as true."""
    content = read(workflow)
    assert content["permissions"] == {"contents": "read"}
    assert content[True]
    assert all(job["timeout-minutes"] for job in content["jobs"].values())


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_major_version(workflow):
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert actions
    assert not [action for action in actions if not re.fullmatch(r"actions/[a-z-]+@v\d+", action)]


def test_the_workflows_run_the_commands_that_contributors_run():
    """`make check`, `make test`, …: nothing is only known to the workflows."""
    called = {
        word for file in WORKFLOWS for step in steps(file) for word in re.findall(r"^make (\S+)", step.get("run", ""))
    }
    assert {"check", "test", "coverage", "docs"} <= called
    assert called <= TARGETS


def test_tests_run_on_two_systems_with_two_pythons():
    matrix = read(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert {system.partition("-")[0] for system in matrix["os"]} == {"ubuntu", "macos"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(matrix["python"]) == 2
    assert f">={matrix['python'][0]}" == project["requires-python"], "the oldest Python that is promised is tested"


def test_a_bug_report_asks_for_the_environment():
    fields = read(ROOT / ".github" / "ISSUE_TEMPLATE" / "bug_report.yml")["body"]
    (environment,) = (field for field in fields if "regard env" in field["attributes"].get("label", ""))
    assert environment["validations"] == {"required": True}


def test_there_is_one_address_to_write_to():
    (maintainers,) = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["maintainers"]
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md"):
        assert set(re.findall(r"[\w.]+@[\w.]+\w", (ROOT / name).read_text())) == {maintainers["email"]}


def test_make_alone_lists_every_target_with_a_line():
    said = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    listed = dict(re.findall(r"^  ([a-z-]+) +(\S.+)$", said, re.M))
    phony = re.search(r"^\.PHONY: (.+)", (ROOT / "Makefile").read_text(), re.M)
    assert phony is not None
    assert {*listed} == {*phony[1].split()} - {"help", "browser"}
    assert {"setup", "check", "test"} <= {*listed}
