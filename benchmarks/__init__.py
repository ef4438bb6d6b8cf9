"""Speeds, measured side by side and printed as ratios; nothing here is part of the package or asserts anything."""
