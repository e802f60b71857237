"""Options of the commands: one frozen class for each command, from which its parts derive."""
