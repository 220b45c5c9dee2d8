"""What runs simulated GPU code: one run at a time, and what it found."""
