"""ONNX operators to primitives, one function per operator and opset range."""
