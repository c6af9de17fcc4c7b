"""An epilogue function: its graph, read from its text; its derivative; their values, by PyTorch."""
