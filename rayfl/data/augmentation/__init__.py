"""What is done to training images before they enter the network."""
