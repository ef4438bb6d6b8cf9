"""Small converters, one for each kind of element; `known` lists them all, and the reasons why other kinds are
refused."""
