"""One file per idea: the equation, pure functions on tensors, and the `Method`s that plug them in."""
