"""A JMeter plan, run by the real JMeter."""
