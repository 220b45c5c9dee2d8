"""Operators on images: resized, sampled, cut into regions and patches."""
