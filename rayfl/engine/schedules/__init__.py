"""How a phase's rounds run on the hosts: one file per schedule."""

from rayfl.engine.schedules.central import Central
from rayfl.engine.schedules.parallel import Parallel
from rayfl.engine.schedules.relay import Relay
from rayfl.engine.schedules.schedule import Schedule

SCHEDULES: dict[str, type[Schedule]] = {"parallel": Parallel, "relay": Relay, "central": Central}
"""By the value of `phases.N.schedule`."""
