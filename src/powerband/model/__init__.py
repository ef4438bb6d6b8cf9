"""The values that all other rooms exchange: experiment, load, plan, metrics, results. No I/O, nothing is run."""
