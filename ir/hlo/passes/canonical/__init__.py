"""Passes that bring dots, convolutions and windows into canonical form."""
