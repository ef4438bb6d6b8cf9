"""JMeter's test plans as experiments: a plan file enters, an experiment file leaves, or every reason why it cannot.

`reader` makes a frozen tree of the XML, `elements` converts one kind of element each, `conversion` walks the plan as
JMeter would, `writer` writes YAML. Nothing is run here, and no expression, script or regular expression of a plan is
evaluated: what would need that is refused.
"""
