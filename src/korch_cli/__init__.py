"""korch: makes ONNX models run faster in ONNX Runtime."""
