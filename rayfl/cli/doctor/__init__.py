"""`rayfl doctor`: checks whether a machine is ready for rayfl."""
