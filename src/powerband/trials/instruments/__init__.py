"""Extra observations that a trial may take: heap snapshots, a real browser, acknowledged writes."""
