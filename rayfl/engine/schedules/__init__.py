"""How a phase's rounds run on the hosts: one file per schedule; a user's own derives from `Schedule`."""
