"""Charts of the report as SVG text: scales and axes in one file, a file for each kind of chart."""
