"""The papers' theory: closed forms, and simulations to compare them with."""
