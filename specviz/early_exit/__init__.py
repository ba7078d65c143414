"""Early exit: a token leaves the model at a layer where an exit head is sure enough, and the rest is not computed."""
