"""TRL's trainers with seams, and `factory.trainer`, which builds one from a method, a preset and a seed."""

from rlkit.versions import warn_once

warn_once()  # before a name that moved in another TRL ends the import with an error that does not say so
