"""Progress, records and curves of a run."""
