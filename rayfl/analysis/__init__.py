"""Theory beside experiment: closed forms of the papers, and simulations to compare them with."""
