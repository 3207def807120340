"""What finished runs say about why a start helps; and the papers' theory beside simulations of it."""
