"""A queue on a simulated disk: clients that speak its bytes, lives that end in crashes, rot."""
