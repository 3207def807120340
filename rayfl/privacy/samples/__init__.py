"""Privacy of single samples (`local.dp`): DP-SGD, and the account of every client."""
