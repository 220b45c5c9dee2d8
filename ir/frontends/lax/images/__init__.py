"""Functions of images: at another size, read at computed places, and boxes in them."""
