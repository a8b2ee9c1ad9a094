"""The CUDA target: what `pipeline.target` chooses for it."""
