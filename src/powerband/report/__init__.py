"""Analysis as people and machines read it: text, live terminal view, JSON, one HTML file. Computes no statistics."""
