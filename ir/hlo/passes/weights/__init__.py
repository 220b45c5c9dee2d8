"""Narrow weights: constants of products, stored in fewer bits than the products compute in."""
