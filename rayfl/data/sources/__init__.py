"""Sources of data by name: each reads its files, or says what stands in for them."""
