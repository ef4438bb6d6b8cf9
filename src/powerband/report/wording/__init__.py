"""Values as words and numbers for people: names, units, verdicts, findings."""
