"""`rlkit train`: a run as a script, which can be interrupted, and whose model stays."""
