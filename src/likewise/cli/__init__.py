"""The command line: arguments in, printed results out."""
