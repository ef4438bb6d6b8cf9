"""Renders an analysis for people and machines; computes no statistics."""
