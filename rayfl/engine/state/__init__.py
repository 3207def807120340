"""The state of a run between rounds: client states, their stores, and snapshots."""
