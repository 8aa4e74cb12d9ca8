"""Network in, tensors out: embedding rows, CUDA graphs, GradCache."""
