"""The pass ``pad_dynamic``: bounded dimensions are padded to their bounds."""
