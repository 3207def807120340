"""`rayfl report`: the page of a run or a grid, in one file."""
