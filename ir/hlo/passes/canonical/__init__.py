"""Passes that give products, convolutions and windows one form."""
