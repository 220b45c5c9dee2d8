"""Measuring candidates in isolated children."""
