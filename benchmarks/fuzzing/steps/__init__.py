"""What a random program may do next, one function a step; importing a file registers its steps."""
