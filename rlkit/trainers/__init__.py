"""TRL's trainers with seams, and `factory.trainer`, which builds one from a method, a preset and a seed."""
