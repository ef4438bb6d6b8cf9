"""Reports of an analysis for people and machines: text, live terminal view, JSON, one HTML file. No statistics here."""
