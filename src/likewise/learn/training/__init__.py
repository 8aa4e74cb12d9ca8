"""Fitting a network: state, step, loop, log, interrupts, and several processes."""
