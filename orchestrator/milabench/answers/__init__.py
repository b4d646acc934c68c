"""Whether the devices of a run computed the same: what their processes say of the losses of their first steps, made twice."""
