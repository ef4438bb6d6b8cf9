"""One small converter for each kind of element; `known` lists them all, and what is said of those that are refused."""
