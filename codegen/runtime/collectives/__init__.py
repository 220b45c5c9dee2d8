"""Exchanges of values between the processes, or threads, that run the devices of one program."""
