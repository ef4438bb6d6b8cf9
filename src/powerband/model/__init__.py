"""The values that all other packages exchange: experiment, load, plan, metrics, results. No I/O, nothing is run."""
