"""Sources of data by name: each reads its files, or generates a stand-in that says so."""
