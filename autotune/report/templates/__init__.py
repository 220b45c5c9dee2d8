"""The templates of the page, one a section."""
