"""Plans to ONNX models, library sources and plan files, written as a set."""
