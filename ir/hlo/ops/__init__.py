"""HLO operations, one frozen definition each; ``registry`` looks them up by opcode."""
