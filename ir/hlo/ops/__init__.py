"""HLO operations, one frozen definition each: ``registry`` holds and answers for all of them."""
