"""Training: losses, miners, samplers, terms, confidences, the training loop, loggers, recipes."""
