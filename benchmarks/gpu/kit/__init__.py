"""The kit for a first run on a GPU: what it holds, how it is packed and checked, the commands."""
