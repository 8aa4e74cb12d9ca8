"""Training in several processes: collectives with gradients, the process group, proxies sharded over processes."""
