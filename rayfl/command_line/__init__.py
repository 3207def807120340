"""What the command lines share: their options, their lists, and how they end."""
