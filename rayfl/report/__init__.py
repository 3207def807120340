"""What a run shows and leaves: progress, records, curves."""
