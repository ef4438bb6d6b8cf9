"""No load: a program drives itself, and a counter says how much it does."""
