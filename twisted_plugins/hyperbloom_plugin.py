"""Tells twistd that there is `twistd hyperbloom`."""

from twisted.application.service import ServiceMaker

serviceMaker = ServiceMaker(
    "hyperbloom",
    "hyperbloom.tap",
    "A node that keeps sets of records the same among people who trust each other.",
    "hyperbloom",
)
