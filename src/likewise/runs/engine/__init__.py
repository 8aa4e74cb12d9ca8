"""Running the network: embedding rows, CUDA graphs, GradCache."""
