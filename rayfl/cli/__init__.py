"""The command line: a file for each command of `rayfl`, with its parser, and what the commands share."""
