"""A trained network outside of its run: load it, export it (safetensors, ONNX), its model card."""
