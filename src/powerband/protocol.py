"""The wire contract seen from the control plane (protocol/*.schema.json): specs to engines and probes, their events."""
