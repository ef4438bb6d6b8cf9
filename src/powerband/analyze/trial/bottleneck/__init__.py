"""Names the one resource that limits a trial, with its evidence and advice."""
