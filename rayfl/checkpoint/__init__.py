"""What a run writes to go on from, and how it is found again."""
