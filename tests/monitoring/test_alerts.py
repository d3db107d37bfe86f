"""The rules for alerts: held by promtool, each in a case in which it fires and one in which not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = ROOT / "tap" / "prometheus-alerts.yml"
CASES = sorted(Path(__file__).parent.glob("alert_cases*.yml"))
PAGE = ROOT / "docs" / "operations.md"
RUNBOOK = re.compile(r"[A-Z`].+: docs/operations\.md#([\w-]+)")


def rules() -> list[dict]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return group["rules"]


ALERTS = {rule["alert"]: rule for rule in rules()}


def test_every_rule_has_a_name_of_its_own():
    assert len(ALERTS) == len(rules()) >= 12


def test_the_rules_are_sound(programs):
    done = programs.tool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


@pytest.mark.parametrize("cases", CASES, ids=lambda path: path.stem)
def test_alerts_fire_where_they_should_and_not_beside_that(programs, cases):
    done = programs.tool("test", "rules", str(cases))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_both_cases():
    tests = [
        case
        for path in CASES
        for block in yaml.safe_load(path.read_text())["tests"]
        for case in block["alert_rule_test"]
    ]
    fires = {case["alertname"] for case in tests if case["exp_alerts"]}
    silent = {case["alertname"] for case in tests if not case["exp_alerts"]}
    assert fires == silent == set(ALERTS)


def test_a_case_notices_another_threshold(programs, tmp_path):
    """So that a case whose series no rule reads is none."""
    text = RULES.read_text()
    for old, new in (("< 0.1\n", "< 0.05\n"), ("7 * 86400", "2 * 86400"), ("> 30", "> 90")):
        assert old in text
        text = text.replace(old, new)
    (tmp_path / "tap").mkdir()
    (tmp_path / "tap" / RULES.name).write_text(text)
    folder = tmp_path / "tests" / "monitoring"
    folder.mkdir(parents=True)
    said = ""
    for path in CASES:
        (folder / path.name).write_text(path.read_text())
        done = programs.tool("test", "rules", str(folder / path.name))
        assert done.returncode == 1
        said += done.stdout + done.stderr
    for name in ("DiskNearlyFull", "LinkEndsWithinWeek", "IssuedLinkEnds", "DeniedRising"):
        assert f"Hyperbloom{name}" in said


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_to_do_and_where_that_is_written(name):
    rule = ALERTS[name]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert set(rule["annotations"]) == {"summary", "runbook"}
    assert "$labels.instance" in rule["annotations"]["summary"]
    found = RUNBOOK.fullmatch(rule["annotations"]["runbook"])
    assert found, rule["annotations"]["runbook"]
    heads = re.findall(r"^#+ +(.+)$", PAGE.read_text(), re.MULTILINE)
    assert found[1] in {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}
    assert f"`{name}`" in PAGE.read_text()
