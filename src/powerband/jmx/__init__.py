"""Converts JMeter's test plans to experiments. In: a plan file. Out: an experiment file, or every reason why the plan
cannot be converted.

`reader` makes a frozen tree of the XML, `elements` has a converter for each kind of element, `conversion` walks the
plan in JMeter's order, `writer` writes YAML. Nothing is run here, and no expression, script or regular expression of a
plan is evaluated: elements that would need that are refused.
"""
