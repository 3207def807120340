"""Privacy of whole clients (`phases.N.dp`): clipped and noised answers and sums, and the account of each phase."""
