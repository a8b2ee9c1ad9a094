"""ONNX files to `Model`s."""
