"""One training step in slow motion: what it holds (`Step`), how it is shown, and methods compared on its rollouts."""
