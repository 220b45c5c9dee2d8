"""HLO as XLA serializes it: the protocol buffers of ``HloModuleProto``, read and written."""
