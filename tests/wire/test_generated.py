from __future__ import annotations

import configparser
import re
from pathlib import Path

from hyperbloom.wire._pb2 import hyperbloom_pb2

ROOT = Path(__file__).resolve().parents[2]


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def test_the_generated_code_runs_with_the_oldest_protobuf_we_install_with() -> None:
    """It refuses a runtime older than its compiler, so a newer compiler would raise the floor."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    floor = re.search(r"^protobuf >= ([\d.]+)$", parser["options"]["install_requires"], re.M)
    code = Path(hyperbloom_pb2.__file__).read_text()
    made = re.search(r"^# Protobuf Python Version: ([\d.]+)$", code, re.M)
    assert floor is not None
    assert made is not None
    assert numbers(made[1])[:2] <= numbers(floor[1])[:2]
