"""Stages: one small file per command. Only the command line and the functions of `likewise` import them.

A stage takes the config of its command and `say`, a function that receives the lines for the user, calls the library
and returns an object with a display in notebooks. It prints nothing. The config is checked once: by the library
function that takes it, otherwise by the stage. A stage imports the library when it is called, so that importing a stage
is cheap.
"""
